{{/* Annotations of a pod with the container. They change, and so replace the pod, when the configuration changes. */}}
{{- define "csi-control-plane.podAnnotations" -}}
{{- include "csi-control-plane.complete" . -}}
{{- if eq .Values.rolloutOnConfigChange "always" -}}
checksum/csi-control-plane: {{ include "csi-control-plane.config" . | sha256sum | quote }}
{{- else if eq .Values.rolloutOnConfigChange "whenNeeded" -}}
checksum/csi-control-plane: {{ include "csi-control-plane.fixed" . | sha256sum | quote }}
{{- end -}}
{{- end -}}

{{/* The daemon's container, for any pod. */}}
{{- define "csi-control-plane.container" -}}
{{- include "csi-control-plane.complete" . -}}
{{- include "csi-control-plane.validate" . -}}
{{- $port := include "csi-control-plane.port" . -}}
{{- $host := include "csi-control-plane.listen" . | include "csi-control-plane.loopback" -}}
name: csi-control-plane
image: {{ include "csi-control-plane.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy | quote }}
args: [run, --config, /etc/csi-control-plane/config.yaml]
env:
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- if or (include "csi-control-plane.perNode" .) (include "csi-control-plane.readsCsiNode" .) }}
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if $port }}
ports:
  - {name: diagnostics, containerPort: {{ $port }}{{ if .Values.hostNetwork }}, hostPort: {{ $port }}{{ end }}, protocol: TCP}
livenessProbe:
  httpGet: {path: /livez, port: diagnostics{{ with $host }}, host: {{ . | quote }}{{ end }}}
  {{- with .Values.probes.liveness }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
readinessProbe:
  httpGet: {path: /readyz, port: diagnostics{{ with $host }}, host: {{ . | quote }}{{ end }}}
  {{- with .Values.probes.readiness }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: csi-control-plane-config, mountPath: /etc/csi-control-plane, readOnly: true}
  {{- if ne .Values.mode "cluster" }}
  - {name: {{ .Values.socket.volume | quote }}, mountPath: {{ include "csi-control-plane.socketPath" . | dir | quote }}}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The container's volumes: the configuration, the socket's folder, and what else is mounted into it. */}}
{{- define "csi-control-plane.volumes" -}}
{{- include "csi-control-plane.complete" . -}}
{{- include "csi-control-plane.configVolume" . }}
{{- if ne .Values.mode "cluster" }}
{{ include "csi-control-plane.socketVolume" . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "csi-control-plane.configVolume" -}}
- name: csi-control-plane-config
  configMap:
    name: {{ include "csi-control-plane.configMapName" . | quote }}
{{- end -}}

{{- define "csi-control-plane.socketVolume" -}}
{{- include "csi-control-plane.complete" . -}}
- name: {{ .Values.socket.volume | quote }}
  {{- if .Values.socket.hostPath }}
  hostPath:
    path: {{ .Values.socket.hostPath | quote }}
    type: DirectoryOrCreate
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end -}}

{{/* The chart's own pod: the driver's containers and the daemon's. */}}
{{- define "csi-control-plane.pod" -}}
metadata:
  labels:
    {{- toYaml (merge (include "csi-control-plane.selectorLabels" . | fromYaml) .Values.podLabels .Values.commonLabels) | nindent 4 }}
  annotations:
    kubectl.kubernetes.io/default-container: csi-control-plane
    {{- include "csi-control-plane.podAnnotations" . | nindent 4 }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- if eq .Values.mode "node" }}
  # Its roles ask no API server, unless csiNodeInterval is set: the pod needs no account and gets no token.
  serviceAccountName: {{ .Values.serviceAccountName | default "default" | quote }}
  automountServiceAccountToken: {{ ne .Values.serviceAccountName "" }}
  {{- else }}
  serviceAccountName: {{ include "csi-control-plane.serviceAccountName" . | quote }}
  {{- end }}
  # A Service's variables would look like the daemon's own.
  enableServiceLinks: false
  {{- if .Values.hostNetwork }}
  hostNetwork: true
  {{- end }}
  {{- /* A pod on the host's network would otherwise ask the node's DNS, which knows no Service. */}}
  {{- with .Values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" .Values.hostNetwork) }}
  dnsPolicy: {{ . | quote }}
  {{- end }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "csi-control-plane.gracePeriod" . }}
  {{- with include "csi-control-plane.priorityClass" . }}
  priorityClassName: {{ . | quote }}
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
{{- if and (include "csi-control-plane.isDeployment" .) (ne .Values.antiAffinity "none") (not $affinity.podAntiAffinity) -}}
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
