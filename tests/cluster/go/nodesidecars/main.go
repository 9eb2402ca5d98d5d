// Command csi-node-driver-registrar, or livenessprobe: which one it is, its name says. Each does what the Go sidecar of that name does
// at the sockets, the port and the end, by the same flags.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

var (
	address  = flag.String("csi-address", "/run/csi/socket", "the driver's socket")
	timeout  = flag.Duration("probe-timeout", 3*time.Second, "of one question for the driver")
	health   = flag.String("health-port", "9808", "where /healthz is")
	endpoint = flag.String("kubelet-registration-path", "", "the driver's socket on the node")
	folder   = flag.String("plugin-registration-path", "/registration", "where the kubelet looks for sockets")
	_        = flag.Int("v", 0, "of no use here")
)

// connect waits for the driver, and asks for its name.
func connect(ctx context.Context) (*grpc.ClientConn, string, error) {
	driver, err := connection.Connect(ctx, *address, metrics.NewCSIMetricsManager(""), connection.WithTimeout(0))
	if err != nil {
		return nil, "", err
	}
	name, err := rpc.GetDriverName(ctx, driver)
	return driver, name, err
}

// probe is livenessprobe: a connection for each question.
func probe(ctx context.Context) error {
	driver, _, err := connect(ctx)
	if err != nil {
		return err
	}
	driver.Close()
	http.HandleFunc("/healthz", func(answer http.ResponseWriter, asked *http.Request) {
		ctx, cancel := context.WithTimeout(asked.Context(), *timeout)
		defer cancel()
		driver, err := connection.Connect(ctx, *address, metrics.NewCSIMetricsManager(""), connection.WithTimeout(*timeout))
		if err == nil {
			defer driver.Close()
			var ready bool
			if ready, err = rpc.Probe(ctx, driver); err == nil && !ready {
				err = fmt.Errorf("driver responded but is not ready")
			}
		}
		if err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(answer, "ok")
	})
	server := &http.Server{Addr: net.JoinHostPort("0.0.0.0", *health)}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	return server.ListenAndServe()
}

// registrar answers the kubelet.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name string
}

func (it registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: it.name, Endpoint: *endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		// The kubelet asks the next process.
		log.Fatalf("the kubelet does not register the driver: %s", status.Error)
	}
	log.Print("the kubelet has registered the driver")
	return &registration.RegistrationStatusResponse{}, nil
}

// register is node-driver-registrar: its socket is only its user's, and goes with it.
func register(ctx context.Context) error {
	driver, name, err := connect(ctx)
	if err != nil {
		return err
	}
	driver.Close()
	socket := filepath.Join(*folder, name+"-reg.sock")
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	mask := syscall.Umask(0o077)
	listener, err := net.Listen("unix", socket)
	syscall.Umask(mask)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, registrar{name: name})
	go func() {
		<-ctx.Done()
		// Which closes the listener, and removes the socket.
		server.Stop()
	}()
	return server.Serve(listener)
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	serve := map[string]func(context.Context) error{"csi-node-driver-registrar": register, "livenessprobe": probe}
	is := filepath.Base(os.Args[0])
	what, known := serve[is]
	if !known {
		log.Fatalf("%s is neither csi-node-driver-registrar nor livenessprobe", is)
	}
	if err := what(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}
