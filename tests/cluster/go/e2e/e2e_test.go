// Package e2e is Kubernetes' own External Storage suite, which checks a driver that a file describes, and nothing else of its
// end-to-end tests. It is built with `go test -c`, since ginkgo runs test binaries in parallel.
package e2e

import (
	"flag"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/component-base/logs"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"

	// The labels that specs may have.
	_ "k8s.io/kubernetes/test/e2e/feature"
	// What a failed spec tells of its namespace.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	// Each spec waits at its end until the nodes are ready.
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	// The suite: -storage.testdriver defines its specs for a driver.
	_ "k8s.io/kubernetes/test/e2e/storage/external"
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	// Classes in files are looked for below the working directory.
	testfiles.AddFileSource(testfiles.RootFileSource{Root: "."})
	os.Exit(m.Run())
}

func TestE2E(t *testing.T) {
	logs.InitLogs()
	defer logs.FlushLogs()
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(t, "External Storage", suite, reporter)
}
