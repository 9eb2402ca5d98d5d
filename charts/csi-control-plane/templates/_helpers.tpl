{{- define "csi-control-plane.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "csi-control-plane.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* For objects without a namespace: releases with the same name in two namespaces must not collide. Neither name can contain a colon. */}}
{{- define "csi-control-plane.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "csi-control-plane.fullname" .) -}}
{{- end -}}

{{- define "csi-control-plane.selectorLabels" -}}
{{- if and (eq .Values.mode "sidecar") .Values.sidecar.podLabels -}}
{{- toYaml .Values.sidecar.podLabels -}}
{{- else -}}
app.kubernetes.io/name: {{ include "csi-control-plane.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- end -}}

{{- define "csi-control-plane.labels" -}}
app.kubernetes.io/name: {{ include "csi-control-plane.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "csi-control-plane.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "csi-control-plane.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "csi-control-plane.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if each node has its own daemon. */}}
{{- define "csi-control-plane.perNode" -}}
{{- if or (eq .Values.mode "daemonset") (and (eq .Values.mode "sidecar") .Values.sidecar.daemonset) -}}true{{- end -}}
{{- end -}}

{{/* Refuses values that cannot work. */}}
{{- define "csi-control-plane.validate" -}}
{{- $driver := required "driver.name is required: the name that the driver answers GetPluginInfo with" .Values.driver.name -}}
{{- if not .Values.config.roles -}}
{{- fail "config.roles is empty: enable a role by its block, such as config.roles.attacher: {}" -}}
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
{{- if not (hasKey $table.roles $role) -}}
{{- fail (printf "config.roles.%s: files/rbac.yaml does not know what rights this role needs" $role) -}}
{{- end -}}
{{- end -}}
{{- $perNode := include "csi-control-plane.perNode" . -}}
{{- range $role, $section := .Values.config.roles -}}
{{- /* The key that makes the role work for its own node alone; none: it never does. */ -}}
{{- $key := (get $table.roles $role).perNode -}}
{{- $isOn := and $key (eq "true" (include "csi-control-plane.at" (dict "in" $section "key" $key))) -}}
{{- if and $perNode (not $key) -}}
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
{{- if gt (int .Values.replicas) 1 -}}
{{- fail (printf "replicas is %d and config.leaderElection.enabled false: each replica would do all the work. Set replicas: 1, or enable leader election" (int .Values.replicas)) -}}
{{- else if ne (get .Values.strategy "type" | default "Recreate") "Recreate" -}}
{{- fail "strategy.type must be Recreate with config.leaderElection.enabled: false: otherwise an old and a new pod work at the same time during an upgrade" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The value of a dotted key, as text; "" if the key is missing, or if a part of its path is null: a section may be empty. */}}
{{- define "csi-control-plane.at" -}}
{{- $at := .in -}}
{{- range splitList "." .key -}}
{{- if kindIs "map" $at -}}{{- $at = get $at . -}}{{- else -}}{{- $at = "" -}}{{- end -}}
{{- end -}}
{{- if not (kindIs "invalid" $at) -}}{{- toString $at -}}{{- end -}}
{{- end -}}

{{/* The configuration file. */}}
{{- define "csi-control-plane.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if include "csi-control-plane.perNode" . -}}
{{- $election := get $config "leaderElection" | default dict -}}
{{- $_ := set $election "enabled" false -}}
{{- $_ := set $config "leaderElection" $election -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* "true" if replicas elect a leader. */}}
{{- define "csi-control-plane.elects" -}}
{{- $config := include "csi-control-plane.config" . | fromYaml -}}
{{- if ne "false" (include "csi-control-plane.at" (dict "in" $config "key" "leaderElection.enabled")) -}}true{{- end -}}
{{- end -}}

{{- define "csi-control-plane.configMapName" -}}
{{- include "csi-control-plane.fullname" . -}}
{{- end -}}

{{/* The folder of the driver's socket in the daemon's container. */}}
{{- define "csi-control-plane.socketFolder" -}}
{{- $endpoint := include "csi-control-plane.at" (dict "in" .Values.config "key" "csi.endpoint") -}}
{{- dir ($endpoint | default "unix:///run/csi/socket" | trimPrefix "unix://") -}}
{{- end -}}

{{/* A duration of the configuration, such as 1m30s or 1.5h, in whole seconds, rounded up. */}}
{{- define "csi-control-plane.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" . -1 -}}
{{- $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- ceil $sum | int -}}
{{- end -}}

{{/* The longest that a call to the driver may take, in seconds. */}}
{{- define "csi-control-plane.callSeconds" -}}
{{- $timeout := include "csi-control-plane.at" (dict "in" .Values.config "key" "csi.timeout") -}}
{{- include "csi-control-plane.seconds" ($timeout | default "15s") -}}
{{- end -}}

{{/* How long a pod may take to stop: a call in flight, then the API, the Leases and the last spans. */}}
{{- define "csi-control-plane.gracePeriod" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- max 45 (add (include "csi-control-plane.callSeconds" . | int) 30) -}}
{{- else -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{/* The diagnostics port; empty if there is none. */}}
{{- define "csi-control-plane.port" -}}
{{- $diagnostics := get .Values.config "diagnostics" | default dict -}}
{{- if and (hasKey $diagnostics "listen") (not $diagnostics.listen) -}}
{{- else -}}
{{- regexFind "[0-9]+$" ($diagnostics.listen | default "0.0.0.0:8080") -}}
{{- end -}}
{{- end -}}

{{/* The part of the configuration that needs a restart. The daemon applies changes of all other keys while it runs. */}}
{{- define "csi-control-plane.fixed" -}}
{{- $config := include "csi-control-plane.config" . | fromYaml -}}
{{- $csi := get $config "csi" | default dict -}}
{{- $telemetry := get $config "telemetry" | default dict -}}
{{- $logs := get $telemetry "logs" | default dict -}}
{{- $provisioner := get $config.roles "provisioner" | default dict -}}
{{- $perNode := get $provisioner "nodeDeployment" | default dict -}}
{{- dict "endpoint" $csi.endpoint "kubernetes" $config.kubernetes "diagnostics" $config.diagnostics "format" $logs.format "traces" $telemetry.traces "runtime" $config.runtime "perNode" $perNode.enabled | toJson -}}
{{- end -}}

{{/* Annotations of a pod with the container. They change, and so replace the pod, when the configuration changes. */}}
{{- define "csi-control-plane.podAnnotations" -}}
{{- if eq .Values.rolloutOnConfigChange "always" -}}
checksum/csi-control-plane: {{ include "csi-control-plane.config" . | sha256sum }}
{{- else if eq .Values.rolloutOnConfigChange "whenNeeded" -}}
checksum/csi-control-plane: {{ include "csi-control-plane.fixed" . | sha256sum }}
{{- end -}}
{{- end -}}

{{/* The daemon's container, for any pod. */}}
{{- define "csi-control-plane.container" -}}
{{- include "csi-control-plane.validate" . -}}
{{- $port := include "csi-control-plane.port" . -}}
name: csi-control-plane
image: {{ include "csi-control-plane.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [run, --config, /etc/csi-control-plane/config.yaml]
env:
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- if include "csi-control-plane.perNode" . }}
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if $port }}
ports:
  - {name: diagnostics, containerPort: {{ $port }}, protocol: TCP}
livenessProbe:
  httpGet: {path: /livez, port: diagnostics}
  {{- toYaml .Values.probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: diagnostics}
  {{- toYaml .Values.probes.readiness | nindent 2 }}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: csi-control-plane-config, mountPath: /etc/csi-control-plane, readOnly: true}
  - {name: {{ .Values.socket.volume }}, mountPath: {{ include "csi-control-plane.socketFolder" . }}}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The container's volumes: the configuration, the socket's folder, and what else is mounted into it. */}}
{{- define "csi-control-plane.volumes" -}}
{{- include "csi-control-plane.configVolume" . }}
{{ include "csi-control-plane.socketVolume" . }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "csi-control-plane.configVolume" -}}
- name: csi-control-plane-config
  configMap:
    name: {{ include "csi-control-plane.configMapName" . }}
{{- end -}}

{{- define "csi-control-plane.socketVolume" -}}
- name: {{ .Values.socket.volume }}
  {{- if .Values.socket.hostPath }}
  hostPath:
    path: {{ .Values.socket.hostPath }}
    type: DirectoryOrCreate
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end -}}

{{/* The chart's own pod: the driver's containers and the daemon's. */}}
{{- define "csi-control-plane.pod" -}}
metadata:
  labels:
    {{- include "csi-control-plane.selectorLabels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: csi-control-plane
    {{- include "csi-control-plane.podAnnotations" . | nindent 4 }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "csi-control-plane.serviceAccountName" . }}
  # A Service's variables would look like the daemon's own.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "csi-control-plane.gracePeriod" . }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "csi-control-plane.affinity" . }}
  affinity:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.driver.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - {{- include "csi-control-plane.container" . | nindent 6 }}
    {{- with .Values.driver.containers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "csi-control-plane.volumes" . | nindent 4 }}
    {{- with .Values.driver.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* `affinity` from the values; if it has no pod anti-affinity, one that keeps replicas apart is added. */}}
{{- define "csi-control-plane.affinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- if and (eq .Values.mode "deployment") (ne .Values.antiAffinity "none") (not $affinity.podAntiAffinity) -}}
{{- $labels := include "csi-control-plane.selectorLabels" . | fromYaml -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
{{- if eq .Values.antiAffinity "required" -}}
{{- $_ := set $affinity "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) -}}
{{- else -}}
{{- $_ := set $affinity "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term))) -}}
{{- end -}}
{{- end -}}
{{- if $affinity -}}
{{- toYaml $affinity -}}
{{- end -}}
{{- end -}}
