// Prints the create flags of the drivers that are part of rancher-machine, as JSON: by driver the name, type, default, usage
// and environment variable of each, in the order in which the driver lists them.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/rancher/machine/drivers/amazonec2"
	"github.com/rancher/machine/drivers/azure"
	"github.com/rancher/machine/drivers/digitalocean"
	"github.com/rancher/machine/drivers/exoscale"
	"github.com/rancher/machine/drivers/generic"
	"github.com/rancher/machine/drivers/google"
	"github.com/rancher/machine/drivers/noop"
	"github.com/rancher/machine/drivers/openstack"
	"github.com/rancher/machine/drivers/pod"
	"github.com/rancher/machine/drivers/rackspace"
	"github.com/rancher/machine/drivers/softlayer"
	"github.com/rancher/machine/drivers/vmwarevsphere"
	"github.com/rancher/machine/libmachine/mcnflag"
)

type driver interface {
	GetCreateFlags() []mcnflag.Flag
}

type flag struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Default any    `json:"default,omitempty"`
	Usage   string `json:"usage"`
	Env     string `json:"env,omitempty"`
}

func described(each mcnflag.Flag) flag {
	switch one := each.(type) {
	case mcnflag.StringFlag:
		return text(one)
	case *mcnflag.StringFlag:
		return text(*one)
	case mcnflag.IntFlag:
		return number(one)
	case *mcnflag.IntFlag:
		return number(*one)
	case mcnflag.BoolFlag:
		return flag{one.Name, "bool", nil, one.Usage, one.EnvVar}
	case *mcnflag.BoolFlag:
		return flag{one.Name, "bool", nil, one.Usage, one.EnvVar}
	case mcnflag.StringSliceFlag:
		return texts(one)
	case *mcnflag.StringSliceFlag:
		return texts(*one)
	}
	fmt.Fprintf(os.Stderr, "a flag of type %T\n", each)
	os.Exit(1)
	return flag{}
}

func text(one mcnflag.StringFlag) flag {
	made := flag{one.Name, "string", nil, one.Usage, one.EnvVar}
	if one.Value != "" {
		made.Default = one.Value
	}
	return made
}

func number(one mcnflag.IntFlag) flag {
	return flag{one.Name, "int", one.Value, one.Usage, one.EnvVar}
}

func texts(one mcnflag.StringSliceFlag) flag {
	made := flag{one.Name, "strings", nil, one.Usage, one.EnvVar}
	if len(one.Value) > 0 {
		made.Default = one.Value
	}
	return made
}

func main() {
	drivers := map[string]driver{
		"amazonec2":     amazonec2.NewDriver("", ""),
		"azure":         azure.NewDriver("", ""),
		"digitalocean":  digitalocean.NewDriver("", ""),
		"exoscale":      exoscale.NewDriver("", ""),
		"generic":       generic.NewDriver("", ""),
		"google":        google.NewDriver("", ""),
		"noop":          noop.NewDriver("", ""),
		"openstack":     openstack.NewDriver("", ""),
		"pod":           pod.NewDriver("", ""),
		"rackspace":     rackspace.NewDriver("", ""),
		"softlayer":     softlayer.NewDriver("", ""),
		"vmwarevsphere": vmwarevsphere.NewDriver("", ""),
	}
	found := map[string][]flag{}
	for name, each := range drivers {
		for _, one := range each.GetCreateFlags() {
			found[name] = append(found[name], described(one))
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(found); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
