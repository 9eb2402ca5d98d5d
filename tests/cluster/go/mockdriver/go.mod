// The mock driver of Kubernetes' own end-to-end tests, for the daemon to serve. The version is that of the control plane of the tests.
module csi-control-plane.invalid/tests/cluster/mockdriver

go 1.26.0

require (
	github.com/container-storage-interface/spec v1.12.1-0.20260720052920-cd9e7ad1ae09
	google.golang.org/grpc v1.82.1
	k8s.io/kubernetes v1.37.2
)

require (
	github.com/go-logr/logr v1.4.3 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
)
