// Command mock-driver serves the mock driver of Kubernetes' own end-to-end tests, which keeps its volumes in memory, on a socket. It
// prints the method of each call, and the error that it ends with.
//
//	mock-driver SOCKET
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

// withoutPublished takes a capability back that the mock driver does not have: it lists each volume as published to its node, at any time.
func withoutPublished(reply *csi.ControllerGetCapabilitiesResponse) {
	reply.Capabilities = slices.DeleteFunc(reply.Capabilities, func(it *csi.ControllerServiceCapability) bool {
		return it.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES
	})
}

func serve(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	reply, err := handler(ctx, request)
	if capabilities, ok := reply.(*csi.ControllerGetCapabilitiesResponse); ok && err == nil {
		withoutPublished(capabilities)
	}
	if err != nil {
		fmt.Println(info.FullMethod, err)
	} else {
		fmt.Println(info.FullMethod)
	}
	return reply, err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mock-driver SOCKET")
		os.Exit(64)
	}
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "mock-driver:", err)
		os.Exit(1)
	}
	mock := service.New(service.Config{DriverName: "mock.csi.k8s.io", IO: service.OSDirIO{}})
	server := grpc.NewServer(grpc.UnaryInterceptor(serve))
	csi.RegisterIdentityServer(server, mock)
	csi.RegisterControllerServer(server, mock)
	csi.RegisterNodeServer(server, mock)
	fmt.Fprintln(os.Stderr, "mock-driver:", server.Serve(listener))
	os.Exit(1)
}
