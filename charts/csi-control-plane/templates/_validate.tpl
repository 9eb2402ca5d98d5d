{{/* Refuses values that cannot work. */}}
{{- define "csi-control-plane.validate" -}}
{{- $driver := required "driver.name is required: the name that the driver answers GetPluginInfo with" .Values.driver.name -}}
{{- if not .Values.config.roles -}}
{{- fail (printf "%sconfig.roles is empty: enable a role by its block, such as config.roles.attacher: {}" (.Values.where | default "")) -}}
{{- end -}}
{{- if and (eq .Values.mode "node") (not .Values.driver.containers) -}}
{{- fail "node.driver.containers is empty: give the containers of the driver's node plugin" -}}
{{- end -}}
{{- if and (ne .Values.mode "sidecar") (not .Values.driver.containers) -}}
{{- fail "driver.containers is empty: give the driver's containers, or use mode: sidecar and put csi-control-plane's container into your own chart's pod" -}}
{{- end -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $monitoring := .Values.monitoring -}}
{{- if and (not .Values.sidecar.podLabels) (or .Values.networkPolicy.enabled $monitoring.podMonitor.enabled $monitoring.serviceMonitor.enabled) -}}
{{- fail "sidecar.podLabels is empty: the NetworkPolicy and the monitors would select no pod of your chart" -}}
{{- end -}}
{{- if and $monitoring.rules.enabled (not $monitoring.podPattern) -}}
{{- fail "monitoring.podPattern is empty: the alerts would look at no pod of your chart" -}}
{{- end -}}
{{- end -}}
{{- $table := .Files.Get "files/rbac.yaml" | fromYaml -}}
{{- range $role, $_ := .Values.config.roles -}}
{{- if eq $.Values.mode "node" -}}
{{- if not (has $role (list "liveness" "registrar")) -}}
{{- fail (printf "node.config.roles.%s: only liveness and registrar work beside the node plugin; the other roles belong to config.roles" $role) -}}
{{- end -}}
{{- else if eq $role "registrar" -}}
{{- fail "config.roles.registrar: this role works beside the driver's node plugin. Set node.enabled: true, and write the role into node.config.roles" -}}
{{- else if not (hasKey $table.roles $role) -}}
{{- fail (printf "config.roles.%s: files/rbac.yaml does not know what rights this role needs" $role) -}}
{{- end -}}
{{- end -}}
{{- if and (include "csi-control-plane.readsCsiNode" .) (not .Values.serviceAccountName) -}}
{{- fail "node.serviceAccountName is empty, and node.config.roles.registrar.csiNodeInterval makes the sidecar read this node's CSINode: name an account with the right to get csinodes, which `csi-control-plane check` prints" -}}
{{- end -}}
{{- $perNode := include "csi-control-plane.perNode" . -}}
{{- range $role, $section := .Values.config.roles -}}
{{- /* The key that makes the role work for its own node alone; none: it never does. */ -}}
{{- $key := (get $table.roles $role | default dict).perNode -}}
{{- $isOn := and $key (eq "true" (include "csi-control-plane.at" (dict "in" $section "key" $key))) -}}
{{- if or (eq $.Values.mode "node") (get $table.roles $role).local -}}
{{- else if and $perNode (not $key) -}}
{{- fail (printf "config.roles.%s works for the whole cluster: with a daemon on each node and without leader election, every node would do the same work" $role) -}}
{{- else if and $perNode (not $isOn) -}}
{{- fail (printf "config.roles.%s.%s must be true with a daemon on each node: there is no leader election then, and without it every node would do the whole cluster's work. Set it, or use mode: deployment" $role $key) -}}
{{- else if and $isOn (not $perNode) -}}
{{- fail (printf "config.roles.%s.%s needs a daemon on each node with NODE_NAME: use mode: daemonset, or in another chart's DaemonSet sidecar.daemonset: true" $role $key) -}}
{{- end -}}
{{- end -}}
{{- $elects := include "csi-control-plane.at" (dict "in" .Values.config "key" "leaderElection.enabled") -}}
{{- if and $perNode (eq "true" $elects) -}}
{{- fail "config.leaderElection.enabled: with one daemon per node there is no leader election" -}}
{{- end -}}
{{- if and (eq .Values.mode "daemonset") (not .Values.socket.hostPath) -}}
{{- fail "socket.hostPath is required with mode: daemonset: kubelet and the daemon connect to the driver through a folder of the node" -}}
{{- end -}}
{{- if and (eq .Values.mode "deployment") (eq "false" $elects) -}}
{{- $replicas := include "csi-control-plane.replicas" . | int -}}
{{- if gt $replicas 1 -}}
{{- fail (printf "replicas is %d and config.leaderElection.enabled false: each replica would do all the work. Set replicas: 1, or enable leader election" $replicas) -}}
{{- else if ne (get .Values.strategy "type" | default "Recreate") "Recreate" -}}
{{- fail "strategy.type must be Recreate with config.leaderElection.enabled: false: otherwise an old and a new pod work at the same time during an upgrade" -}}
{{- end -}}
{{- end -}}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- if hasKey $.Values.commonLabels . -}}
{{- fail (printf "commonLabels.%s: the chart sets this label itself" .) -}}
{{- end -}}
{{- end -}}
{{- include "csi-control-plane.check" . -}}
{{- $listen := include "csi-control-plane.at" (dict "in" .Values.config "key" "diagnostics.listen") -}}
{{- if and (include "csi-control-plane.loopback" $listen) (not .Values.hostNetwork) -}}
{{- fail (printf "config.diagnostics.listen is %s: kubelet connects to the pod's own address, so the liveness probe would fail and restart the pods again and again. Use 0.0.0.0 or [::]" $listen) -}}
{{- else if regexMatch ":0+$" $listen -}}
{{- fail "config.diagnostics.listen has port 0, any free port: the probes need one that the chart knows" -}}
{{- end -}}
{{- $_ := include "csi-control-plane.nodePorts" . -}}
{{- if ne .Values.mode "sidecar" -}}
{{- include "csi-control-plane.checkMounts" . -}}
{{- end -}}
{{- /* The new pod would take the registration's socket over, and the old pod's driver would still have the driver's. */ -}}
{{- $nodeSurge := (get .Values.updateStrategy "rollingUpdate" | default dict).maxSurge | default 0 | toString -}}
{{- if and (eq .Values.mode "node") (not (has $nodeSurge (list "0" "0%"))) -}}
{{- fail (printf "node.updateStrategy.rollingUpdate.maxSurge is %s: two pods of one driver cannot share the socket's folder of a node" $nodeSurge) -}}
{{- end -}}
{{- $surge := (get .Values.updateStrategy "rollingUpdate" | default dict).maxSurge | default 0 | toString -}}
{{- if and (eq .Values.mode "daemonset") (include "csi-control-plane.onePerNode" .) .Values.hostNetwork (not (has $surge (list "0" "0%"))) -}}
{{- fail (printf "updateStrategy.rollingUpdate.maxSurge is %s: with hostNetwork the new pod of a node would wait for the old pod's port without end" $surge) -}}
{{- end -}}
{{- end -}}
