// One binary with the programs of a Kubernetes node, and the scheduler that fills it. It picks the program by the name it is called
// by (a symbolic link), or by its first argument. Apart from ../kubernetes, which most tests need and need soon.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func(){
	"kube-proxy":     func() { os.Exit(cli.Run(proxy.NewProxyCommand())) },
	"kube-scheduler": func() { os.Exit(cli.Run(scheduler.NewSchedulerCommand())) },
	"kubelet":        func() { os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background()))) },
}

func main() {
	if run, ok := programs[filepath.Base(os.Args[0])]; ok {
		run()
		return
	}
	if len(os.Args) > 1 {
		if run, ok := programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	fmt.Fprintln(os.Stderr, "say which program: kubelet, kube-proxy or kube-scheduler")
	os.Exit(2)
}
