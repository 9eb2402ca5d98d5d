{{/* The context of the node plugin's pods: the chart's own, with each key of `node` in place of the key of that name. So the templates of
the controller's pod make the node plugin's, too. */}}
{{- define "csi-control-plane.nodeContext" -}}
{{- include "csi-control-plane.complete" . -}}
{{- $node := .Values.node -}}
{{- $values := deepCopy .Values -}}
{{- range $key, $value := omit $node "enabled" "kubeletPath" -}}
{{- $_ := set $values $key $value -}}
{{- end -}}
{{- $name := printf "%s-node" (include "csi-control-plane.name" . | trunc 58 | trimSuffix "-") -}}
{{- $_ := set $values "nameOverride" $name -}}
{{- $_ := set $values "fullnameOverride" (printf "%s-node" (include "csi-control-plane.fullname" . | trunc 47 | trimSuffix "-")) -}}
{{- $_ := set $values "controllerName" (include "csi-control-plane.fullname" .) -}}
{{- $_ := set $values "mode" "node" -}}
{{- /* What messages put before a key. */ -}}
{{- $_ := set $values "where" "node." -}}
{{- $kubelet := $node.kubeletPath | trimSuffix "/" -}}
{{- $driver := merge (dict "name" .Values.driver.name) $node.driver -}}
{{- $folder := $node.socket.hostPath | default (printf "%s/plugins/%s" $kubelet .Values.driver.name) | trimSuffix "/" -}}
{{- $_ := set $values "socket" (dict "volume" $node.socket.volume "hostPath" $folder) -}}
{{- $config := deepCopy $node.config -}}
{{- $roles := get $config "roles" | default dict -}}
{{- if hasKey $roles "registrar" -}}
{{- /* Where the kubelet finds the socket, and where this container finds the kubelet's folder. */ -}}
{{- $registrar := get $roles "registrar" | default dict -}}
{{- $socket := get ($config.csi | default dict) "endpoint" | default "unix:///run/csi/csi.sock" | base -}}
{{- if not $registrar.kubeletRegistrationPath -}}{{- $_ := set $registrar "kubeletRegistrationPath" (printf "%s/%s" $folder $socket) -}}{{- end -}}
{{- $_ := set $roles "registrar" $registrar -}}
{{- $directory := $registrar.directory | default "/registration" -}}
{{- $registry := dict "name" "plugins-registry" "hostPath" (dict "path" (printf "%s/plugins_registry" $kubelet) "type" "Directory") -}}
{{- $_ := set $driver "volumes" (append ($driver.volumes | default list) $registry) -}}
{{- $_ := set $values "extraVolumeMounts" (append ($node.extraVolumeMounts | default list) (dict "name" "plugins-registry" "mountPath" $directory)) -}}
{{- end -}}
{{- $_ := set $values "driver" $driver -}}
{{- $_ := set $values "config" $config -}}
{{- toYaml (dict "values" $values) -}}
{{- end -}}

{{/* Calls a template with that context: (list . TEMPLATE). */}}
{{- define "csi-control-plane.onNode" -}}
{{- $top := first . -}}
{{- $values := (include "csi-control-plane.nodeContext" $top | fromYaml).values -}}
{{- $node := dict "Values" $values "Chart" $top.Chart "Release" $top.Release "Files" $top.Files "Capabilities" $top.Capabilities "Template" $top.Template -}}
{{- include "csi-control-plane.followLiveness" $node -}}
{{- include (last .) $node -}}
{{- end -}}

{{- define "csi-control-plane.nodeConfigMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "csi-control-plane.configMapName" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "csi-control-plane.labels" . | nindent 4 }}
data:
  config.yaml: |
    {{- include "csi-control-plane.config" . | nindent 4 }}
{{- end -}}

{{- define "csi-control-plane.nodePodMonitor" -}}
{{- $monitor := .Values.monitoring.podMonitor -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "csi-control-plane.fullname" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "csi-control-plane.labelsAnd" (list . $monitor.labels) | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "csi-control-plane.selectorLabels" . | nindent 6 }}
  podMetricsEndpoints:
    - {port: diagnostics, path: /metrics, interval: {{ $monitor.interval | quote }}}
{{- end -}}

{{- define "csi-control-plane.nodeDaemonSet" -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "csi-control-plane.fullname" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "csi-control-plane.labels" . | nindent 4 }}
  {{- with .Values.workloadAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if not (kindIs "invalid" .Values.revisionHistoryLimit) }}
  revisionHistoryLimit: {{ int .Values.revisionHistoryLimit }}
  {{- end }}
  {{- with .Values.updateStrategy }}
  updateStrategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "csi-control-plane.selectorLabels" . | nindent 6 }}
  template:
    {{- include "csi-control-plane.pod" . | nindent 4 }}
{{- end -}}
