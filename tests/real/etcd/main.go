// The etcd server, as its own release builds it; called by the name etcdutl, the tool that works on etcd's files.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	if filepath.Base(os.Args[0]) != "etcdutl" {
		etcdmain.Main(os.Args)
		return
	}
	root := &cobra.Command{Use: "etcdutl", SilenceUsage: true}
	root.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "fields, json, simple or table")
	root.AddCommand(etcdutl.NewSnapshotCommand(), etcdutl.NewDefragCommand(), etcdutl.NewHashKVCommand(), etcdutl.NewVersionCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
