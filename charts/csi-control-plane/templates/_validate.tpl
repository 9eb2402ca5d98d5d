{{/* Refuses values that cannot work, and tells all that is wrong with them at once. */}}
{{- define "csi-control-plane.validate" -}}
{{- $faults := (include "csi-control-plane.faults" . | fromJson).faults -}}
{{- if and .Values.node.enabled (ne .Values.mode "node") -}}
{{- $faults = concat $faults (include "csi-control-plane.onNode" (list . "csi-control-plane.faults") | fromJson).faults | default list -}}
{{- $faults = concat $faults (include "csi-control-plane.sharedPorts" . | fromJson).faults | default list -}}
{{- end -}}
{{- if eq (len $faults) 1 -}}
{{- first $faults | fail -}}
{{- else if $faults -}}
{{- fail (printf "the values have %d faults\n\n%s\n" (len $faults) (join "\n\n" $faults)) -}}
{{- end -}}
{{- end -}}

{{/* What cannot work, as JSON: {"faults": [TEXT]}. */}}
{{- define "csi-control-plane.faults" -}}
{{- $faults := list -}}
{{- $where := .Values.where | default "" -}}
{{- if eq .Values.mode "cluster" -}}
{{- if or .Values.driver.name .Values.driver.containers .Values.driver.initContainers .Values.driver.volumes -}}
{{- $faults = append $faults "driver: mode: cluster works for all drivers of the cluster, and has none beside it. Leave driver.name, driver.containers, driver.initContainers and driver.volumes out" -}}
{{- end -}}
{{- if .Values.node.enabled -}}
{{- $faults = append $faults "node.enabled: a node plugin belongs to the release of its driver, not to mode: cluster" -}}
{{- end -}}
{{- range $role, $_ := .Values.config.roles -}}
{{- if ne $role "attachDetach" -}}
{{- $faults = append $faults (printf "config.roles.%s: mode: cluster has no driver. Only attachDetach works without one; this role belongs to a release beside its driver" $role) -}}
{{- end -}}
{{- end -}}
{{- else if and (not .Values.driver.name) (ne .Values.mode "node") -}}
{{- $faults = append $faults "driver.name is required: the name that the driver answers GetPluginInfo with" -}}
{{- end -}}
{{- if not .Values.config.roles -}}
{{- $faults = append $faults (printf "%sconfig.roles is empty: enable a role by its block, such as config.roles.attacher: {}" $where) -}}
{{- end -}}
{{- if and (eq .Values.mode "node") (not .Values.driver.containers) -}}
{{- $faults = append $faults "node.driver.containers is empty: give the containers of the driver's node plugin" -}}
{{- else if and (not (has .Values.mode (list "sidecar" "cluster"))) (not .Values.driver.containers) -}}
{{- $faults = append $faults "driver.containers is empty: give the driver's containers, or use mode: sidecar and put csi-control-plane's container into your own chart's pod" -}}
{{- end -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $monitoring := .Values.monitoring -}}
{{- if and (not .Values.sidecar.podLabels) (or .Values.networkPolicy.enabled $monitoring.podMonitor.enabled $monitoring.serviceMonitor.enabled) -}}
{{- $faults = append $faults "sidecar.podLabels is empty: the NetworkPolicy and the monitors would select no pod of your chart" -}}
{{- end -}}
{{- if and $monitoring.rules.enabled (not $monitoring.podPattern) -}}
{{- $faults = append $faults "monitoring.podPattern is empty: the alerts would look at no pod of your chart" -}}
{{- end -}}
{{- end -}}
{{- $table := .Files.Get "files/rbac.yaml" | fromYaml -}}
{{- range $role, $_ := .Values.config.roles -}}
{{- if eq $.Values.mode "node" -}}
{{- if not (has $role (list "liveness" "registrar")) -}}
{{- $faults = append $faults (printf "node.config.roles.%s: only liveness and registrar work beside the node plugin; the other roles belong to config.roles" $role) -}}
{{- end -}}
{{- else if eq $role "registrar" -}}
{{- $faults = append $faults "config.roles.registrar: this role works beside the driver's node plugin. Set node.enabled: true, and write the role into node.config.roles" -}}
{{- else if not (hasKey $table.roles $role) -}}
{{- $faults = append $faults (printf "config.roles.%s: files/rbac.yaml does not know what rights this role needs" $role) -}}
{{- end -}}
{{- end -}}
{{- if and (include "csi-control-plane.readsCsiNode" .) (not .Values.serviceAccountName) -}}
{{- $faults = append $faults "node.serviceAccountName is empty, and node.config.roles.registrar.csiNodeInterval makes the sidecar read this node's CSINode: name an account with the right to get csinodes, which `csi-control-plane check` prints" -}}
{{- end -}}
{{- $perNode := include "csi-control-plane.perNode" . -}}
{{- range $role, $section := .Values.config.roles -}}
{{- /* The key that makes the role work for its own node alone; none: it never does. */ -}}
{{- $key := (get $table.roles $role | default dict).perNode -}}
{{- $isOn := and $key (eq "true" (include "csi-control-plane.at" (dict "in" $section "key" $key))) -}}
{{- if or (eq $.Values.mode "node") (not (hasKey $table.roles $role)) (get $table.roles $role | default dict).local -}}
{{- else if and $perNode (not $key) -}}
{{- $faults = append $faults (printf "config.roles.%s works for the whole cluster: with a daemon on each node and without leader election, every node would do the same work" $role) -}}
{{- else if and $perNode (not $isOn) -}}
{{- $faults = append $faults (printf "config.roles.%s.%s must be true with a daemon on each node: there is no leader election then, and without it every node would do the whole cluster's work. Set it, or use mode: deployment" $role $key) -}}
{{- else if and $isOn (not $perNode) -}}
{{- $faults = append $faults (printf "config.roles.%s.%s needs a daemon on each node with NODE_NAME: use mode: daemonset, or in another chart's DaemonSet sidecar.daemonset: true" $role $key) -}}
{{- end -}}
{{- end -}}
{{- $elects := include "csi-control-plane.at" (dict "in" .Values.config "key" "leaderElection.enabled") -}}
{{- if and $perNode (eq "true" $elects) -}}
{{- $faults = append $faults "config.leaderElection.enabled: with one daemon per node there is no leader election" -}}
{{- end -}}
{{- if and (eq .Values.mode "daemonset") (not .Values.socket.hostPath) -}}
{{- $faults = append $faults "socket.hostPath is required with mode: daemonset: kubelet and the daemon connect to the driver through a folder of the node" -}}
{{- end -}}
{{- if and (include "csi-control-plane.isDeployment" .) (eq "false" $elects) -}}
{{- $replicas := include "csi-control-plane.replicas" . | int -}}
{{- if gt $replicas 1 -}}
{{- $faults = append $faults (printf "replicas is %d and config.leaderElection.enabled false: each replica would do all the work. Set replicas: 1, or enable leader election" $replicas) -}}
{{- else if ne (get .Values.strategy "type" | default "Recreate") "Recreate" -}}
{{- $faults = append $faults "strategy.type must be Recreate with config.leaderElection.enabled: false: otherwise an old and a new pod work at the same time during an upgrade" -}}
{{- end -}}
{{- end -}}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- if hasKey $.Values.commonLabels . -}}
{{- $faults = append $faults (printf "commonLabels.%s: the chart sets this label itself" .) -}}
{{- end -}}
{{- end -}}
{{- with include "csi-control-plane.check" . -}}{{- $faults = append $faults . -}}{{- end -}}
{{- $listen := include "csi-control-plane.at" (dict "in" .Values.config "key" "diagnostics.listen") -}}
{{- if and (include "csi-control-plane.loopback" $listen) (not .Values.hostNetwork) -}}
{{- $faults = append $faults (printf "%sconfig.diagnostics.listen is %s: kubelet connects to the pod's own address, so the liveness probe would fail and restart the pods again and again. Use 0.0.0.0 or [::]" $where $listen) -}}
{{- else if regexMatch ":0+$" $listen -}}
{{- $faults = append $faults (printf "%sconfig.diagnostics.listen has port 0, any free port: the probes need one that the chart knows" $where) -}}
{{- end -}}
{{- $faults = concat $faults (include "csi-control-plane.nodePorts" . | fromJson).faults | default list -}}
{{- $monitoring := .Values.monitoring -}}
{{- if and (ne .Values.mode "node") (not (include "csi-control-plane.port" .)) (or $monitoring.podMonitor.enabled $monitoring.serviceMonitor.enabled) -}}
{{- $faults = append $faults "config.diagnostics.listen is null: there is nothing to scrape" -}}
{{- end -}}
{{- $egress := .Values.networkPolicy.egress -}}
{{- if and (ne .Values.mode "node") .Values.networkPolicy.enabled $egress.enabled (not $egress.apiPorts) -}}
{{- $faults = append $faults "networkPolicy.egress.apiPorts is empty: a rule without ports lets out to every port" -}}
{{- end -}}
{{- if ne .Values.mode "sidecar" -}}
{{- if .Values.driver.containers -}}
{{- with include "csi-control-plane.checkMounts" . -}}{{- $faults = append $faults . -}}{{- end -}}
{{- end -}}
{{- $faults = concat $faults (include "csi-control-plane.namesakes" . | fromJson).faults | default list -}}
{{- end -}}
{{- /* The new pod would take the registration's socket over, and the old pod's driver would still have the driver's. */ -}}
{{- $nodeSurge := (get .Values.updateStrategy "rollingUpdate" | default dict).maxSurge | default 0 | toString -}}
{{- if and (eq .Values.mode "node") (not (has $nodeSurge (list "0" "0%"))) -}}
{{- $faults = append $faults (printf "node.updateStrategy.rollingUpdate.maxSurge is %s: two pods of one driver cannot share the socket's folder of a node" $nodeSurge) -}}
{{- end -}}
{{- $surge := (get .Values.updateStrategy "rollingUpdate" | default dict).maxSurge | default 0 | toString -}}
{{- if and (eq .Values.mode "daemonset") (include "csi-control-plane.onePerNode" .) .Values.hostNetwork (not (has $surge (list "0" "0%"))) -}}
{{- $faults = append $faults (printf "updateStrategy.rollingUpdate.maxSurge is %s: with hostNetwork the new pod of a node would wait for the old pod's port without end" $surge) -}}
{{- end -}}
{{- toJson (dict "faults" ($faults | default list)) -}}
{{- end -}}

{{/* Names that a pod would have twice, as JSON: {"faults": [TEXT]}. Kubernetes takes no pod with them. */}}
{{- define "csi-control-plane.namesakes" -}}
{{- $faults := list -}}
{{- $where := .Values.where | default "" -}}
{{- $volumes := dict "csi-control-plane-config" "the chart's own, for the configuration" .Values.socket.volume (printf "the chart's own, for the socket (%ssocket.volume)" $where) -}}
{{- $containers := dict "csi-control-plane" "the daemon's" -}}
{{- range $list := list "extraVolumes" "driver.volumes" "driver.containers" "driver.initContainers" -}}
{{- $taken := ternary $volumes $containers (hasSuffix "olumes" $list) -}}
{{- $items := include "csi-control-plane.value" (dict "in" $.Values "key" $list) | fromJson -}}
{{- range $at, $item := $items.value -}}
{{- $path := printf "%s%s[%d].name" $where $list $at -}}
{{- $name := toString $item.name -}}
{{- if hasKey $taken $name -}}
{{- $faults = append $faults (printf "%s is %q, and that name is %s: Kubernetes takes no pod with one name twice. Leave it out, or give it another name" $path $name (get $taken $name)) -}}
{{- else -}}
{{- $_ := set $taken $name (printf "that of %s" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "faults" ($faults | default list)) -}}
{{- end -}}
