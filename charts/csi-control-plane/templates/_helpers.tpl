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
{{- toYaml (dict "app.kubernetes.io/name" (include "csi-control-plane.name" .) "app.kubernetes.io/instance" .Release.Name) -}}
{{- end -}}
{{- end -}}

{{/* The labels of an object: the chart's own, and commonLabels. */}}
{{- define "csi-control-plane.labels" -}}
{{- include "csi-control-plane.labelsAnd" (list . dict) -}}
{{- end -}}

{{/* The same with labels of the object's own: (list . LABELS). */}}
{{- define "csi-control-plane.labelsAnd" -}}
{{- $top := first . -}}
{{- $own := dict "app.kubernetes.io/name" (include "csi-control-plane.name" $top) "app.kubernetes.io/instance" $top.Release.Name -}}
{{- $_ := set $own "app.kubernetes.io/version" $top.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $top.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $top.Chart.Name $top.Chart.Version | replace "+" "_") -}}
{{- toYaml (merge $own (last .) $top.Values.commonLabels) -}}
{{- end -}}

{{- define "csi-control-plane.serviceAccountName" -}}
{{- include "csi-control-plane.complete" . -}}
{{- .Values.serviceAccount.name | default (ternary (include "csi-control-plane.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "csi-control-plane.image" -}}
{{- with .Values.image -}}
{{- if .registry -}}{{ .registry | trimSuffix "/" }}/{{- end -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if the image's name begins with a registry: a host has a dot or a port, or is localhost. */}}
{{- define "csi-control-plane.imageHasRegistry" -}}
{{- if regexMatch "^([^/]*[.:][^/]*|localhost)/" (include "csi-control-plane.image" .) -}}true{{- end -}}
{{- end -}}

{{/* How many replicas: replicaCount is another name of replicas. */}}
{{- define "csi-control-plane.replicas" -}}
{{- $number := .Values.replicaCount -}}
{{- if kindIs "invalid" $number -}}{{- $number = .Values.replicas -}}{{- end -}}
{{- /* null for both is no wish for none. */ -}}
{{- if kindIs "invalid" $number -}}2{{- else -}}{{- int $number -}}{{- end -}}
{{- end -}}

{{/* The pods' priority class; empty: none. */}}
{{- define "csi-control-plane.priorityClass" -}}
{{- if kindIs "invalid" .Values.priorityClassName -}}
{{- ternary "system-node-critical" "system-cluster-critical" (eq .Values.mode "daemonset") -}}
{{- else -}}
{{- .Values.priorityClassName -}}
{{- end -}}
{{- end -}}

{{/* A warning if the daemon is not root, and the socket's folder is one of the node, which belongs to root; else nothing. */}}
{{- define "csi-control-plane.notRoot" -}}
{{- $user := 65532 -}}
{{- range list .Values.podSecurityContext .Values.securityContext -}}
{{- if not (kindIs "invalid" .runAsUser) -}}{{- $user = int .runAsUser -}}{{- end -}}
{{- end -}}
{{- if and .Values.socket.hostPath (ne $user 0) -}}
the daemon runs as user {{ $user }}, and socket.hostPath is a folder of the node, which the kubelet makes for root: the daemon cannot connect to the socket of a driver that runs as root, and a driver that runs as user {{ $user }} cannot make one there. Drivers on a folder of the node mostly run as root. Then set podSecurityContext: null and securityContext: {runAsNonRoot: false, runAsUser: 0, runAsGroup: 0}; the daemon still has no capabilities. Ignore this only if the folder belongs to user {{ $user }}.
{{- end -}}
{{- end -}}

{{/* "true" if the chart makes a Deployment. */}}
{{- define "csi-control-plane.isDeployment" -}}
{{- if has .Values.mode (list "deployment" "cluster") -}}true{{- end -}}
{{- end -}}

{{/* For whom the release works, for people. */}}
{{- define "csi-control-plane.subject" -}}
{{- ternary "all drivers of the cluster" .Values.driver.name (eq .Values.mode "cluster") -}}
{{- end -}}

{{/* "true" if each node has its own daemon. */}}
{{- define "csi-control-plane.perNode" -}}
{{- if or (eq .Values.mode "daemonset") (and (eq .Values.mode "sidecar") .Values.sidecar.daemonset) -}}true{{- end -}}
{{- end -}}
