{{/* The port of the node that a pod of the release listens on if hostNetwork is set: it follows from namespace, release and driver, so
that two releases on one node differ (but for a chance of one in 500), and the controller's is never the node plugin's. From 28000 to
28999: not 8080, which many programs use; below the ports that Kubernetes and Linux hand out themselves. */}}
{{- define "csi-control-plane.hostPort" -}}
{{- $of := printf "%s/%s/%s" .Release.Namespace (.Values.controllerName | default (include "csi-control-plane.fullname" .)) .Values.driver.name -}}
{{- $pair := mod (sha256sum $of | adler32sum | int64) 500 -}}
{{- add 28000 (mul 2 $pair) (ternary 1 0 (eq .Values.mode "node")) -}}
{{- end -}}

{{/* Where a pod on the host's network listens: the node plugin on its node alone, since only the kubelet there asks it, unless a Prometheus
is to reach it. */}}
{{- define "csi-control-plane.hostAddress" -}}
{{- $isOpen := or (ne .Values.mode "node") (eq "true" (toString .Values.monitoring.podMonitor.enabled)) -}}
{{- include "csi-control-plane.hostPort" . | printf (ternary "[::]:%s" "127.0.0.1:%s" $isOpen) -}}
{{- end -}}

{{/* The host of an address, if only the node itself reaches it: a probe of a pod on the host's network has to name it, because the kubelet
asks the node's own address otherwise. */}}
{{- define "csi-control-plane.loopback" -}}
{{- if regexMatch "^(127[.]|\\[::1\\])" . -}}{{- regexReplaceAll ":[0-9]+$" . "" | trimAll "[]" -}}{{- end -}}
{{- end -}}

{{/* The port at which the role liveness answers the probe of the driver's container; empty if the role is not enabled. */}}
{{- define "csi-control-plane.livenessPort" -}}
{{- include "csi-control-plane.complete" . -}}
{{- $config := include "csi-control-plane.config" . | fromYaml -}}
{{- if hasKey ($config.roles | default dict) "liveness" -}}
{{- include "csi-control-plane.at" (dict "in" $config "key" "roles.liveness.listen") | default "[::]:9808" | regexFind "[0-9]+$" -}}
{{- end -}}
{{- end -}}

{{/* "true" if the chart chooses the port of the role liveness: on the host's network, unless the configuration names one. */}}
{{- define "csi-control-plane.choosesLiveness" -}}
{{- if and .Values.hostNetwork (hasKey (.Values.config.roles | default dict) "liveness") (not (include "csi-control-plane.at" (dict "in" .Values.config "key" "roles.liveness.listen"))) -}}true{{- end -}}
{{- end -}}

{{/* Where the chart chooses that port, the driver's containers follow, in place: probes that ask 9808, by number or by the name of a
declared port, ask it, and a declared port 9808 goes, because the daemon's container declares the port of the node. */}}
{{- define "csi-control-plane.followLiveness" -}}
{{- if include "csi-control-plane.choosesLiveness" . -}}
{{- $config := include "csi-control-plane.config" . | fromYaml -}}
{{- $address := include "csi-control-plane.at" (dict "in" $config "key" "roles.liveness.listen") -}}
{{- $port := $address | regexFind "[0-9]+$" | int -}}
{{- $host := include "csi-control-plane.loopback" $address -}}
{{- range $container := concat .Values.driver.containers .Values.driver.initContainers -}}
{{- $names := list "9808" -}}
{{- $others := list -}}
{{- range $container.ports -}}
{{- if eq (int .containerPort) 9808 -}}{{- $names = append $names (.name | default "9808") -}}{{- else -}}{{- $others = append $others . -}}{{- end -}}
{{- end -}}
{{- if ne (len $others) (len ($container.ports | default list)) -}}{{- $_ := set $container "ports" $others -}}{{- end -}}
{{- range list "livenessProbe" "readinessProbe" "startupProbe" -}}
{{- $request := (get $container . | default dict).httpGet | default dict -}}
{{- if has (toString $request.port) $names -}}
{{- $_ := set $request "port" $port -}}
{{- if $host -}}{{- $_ := set $request "host" $host -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The ports of the node that a pod takes, and what is wrong where both the daemon and the driver declare one, as JSON:
{"taken": {"9000/TCP": KEY}, "faults": [TEXT]}. */}}
{{- define "csi-control-plane.nodePorts" -}}
{{- $config := include "csi-control-plane.config" . | fromYaml -}}
{{- $where := .Values.where | default "" -}}
{{- $taken := dict -}}
{{- $faults := list -}}
{{- if .Values.hostNetwork -}}
{{- range list "roles.registrar.healthListen" "roles.liveness.listen" "diagnostics.listen" -}}
{{- $port := include "csi-control-plane.at" (dict "in" $config "key" .) | regexFind "[0-9]+$" -}}
{{- if $port -}}{{- $_ := set $taken (printf "%s/TCP" $port) (printf "%sconfig.%s" $where .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $declared := printf "%s/TCP" (include "csi-control-plane.port" .) -}}
{{- range $list := list "containers" "initContainers" -}}
{{- range $at, $container := get $.Values.driver $list -}}
{{- range $index, $port := $container.ports -}}
{{- $number := $port.hostPort | default (ternary $port.containerPort 0 $.Values.hostNetwork) | int -}}
{{- if $number -}}
{{- $key := printf "%d/%s" $number ($port.protocol | default "TCP") -}}
{{- $path := printf "%sdriver.%s[%d].ports[%d]" $where $list $at $index -}}
{{- if and $.Values.hostNetwork (eq $key $declared) -}}
{{- $faults = append $faults (printf "%s is port %d of the node, and %sconfig.diagnostics.listen has it, too: Kubernetes takes no pod with one port of the node twice. Give the daemon or the driver another one" $path $number $where) -}}
{{- end -}}
{{- $_ := set $taken $key ($taken | dig $key $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "taken" $taken "faults" ($faults | default list)) -}}
{{- end -}}

{{/* The ports of the node that both the controller's pod and the node plugin's take, as JSON: {"faults": [TEXT]}. The former would wait for
a node without the latter, and mostly there is none. */}}
{{- define "csi-control-plane.sharedPorts" -}}
{{- $faults := list -}}
{{- $controller := (include "csi-control-plane.nodePorts" . | fromJson).taken -}}
{{- $node := (include "csi-control-plane.onNode" (list . "csi-control-plane.nodePorts") | fromJson).taken -}}
{{- range $port, $key := $controller -}}
{{- if hasKey $node $port -}}
{{- $faults = append $faults (printf "%s and %s both take port %s of a node: no node could run the controller's pod beside the node plugin. Choose another port for one of them" $key (get $node $port) $port) -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "faults" ($faults | default list)) -}}
{{- end -}}
