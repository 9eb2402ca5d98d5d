{{/* Completes the values in place: every template that reads them includes this first, so that none has to expect a null.

A section whose lines are all commented out is null, and Helm takes the defaults of its keys away; in a subchart the null itself may
arrive. It is as the empty value, which means: a section has its defaults; a list, labels and what Kubernetes defines are empty; a
switch is off; a text is "", or, where that cannot be, the default, as is a number. */}}
{{- define "csi-control-plane.complete" -}}
{{- if not .Values.isComplete -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- include "csi-control-plane.completeSection" (dict "in" .Values "defaults" $defaults) -}}
{{- $strings := dict "texts" (list "name" "value" "key" "path" "image" "workingDir" "host" "mountPath" "subPath" "subPathExpr" "secretName" "claimName" "topologyKey" "operator" "effect" "cidr" "fieldPath" "resource" "containerName" "fsType" "level" "user" "role" "type" "server" "service" "serviceAccount" "storageClassName" "volumeName" "localhostProfile" "prefix" "devicePath") -}}
{{- $_ := set $strings "lists" (list "args" "command" "values" "namespaces" "nameservers" "searches" "matchLabelKeys" "mismatchLabelKeys" "add" "drop" "except" "accessModes" "mountOptions" "monitors" "portals" "targetWWNs" "wwids") -}}
{{- $_ := set $strings "maps" (list "labels" "annotations" "matchLabels" "nodeSelector" "commonLabels" "podLabels" "podAnnotations" "workloadAnnotations" "alertLabels" "volumeAttributes") -}}
{{- include "csi-control-plane.strings" (dict "in" (omit .Values "config" "node" "extraObjects" "global") "path" "" "strings" $strings) -}}
{{- include "csi-control-plane.strings" (dict "in" (omit .Values.node "config") "path" "node." "strings" $strings) -}}
{{- /* Of the user's own objects only Kubernetes' own kinds are known, and of these what holds nothing but texts. */ -}}
{{- $strings := dict "texts" list "lists" list "maps" (list "labels" "annotations" "matchLabels" "nodeSelector" "parameters" "data" "stringData") -}}
{{- range $index, $object := .Values.extraObjects -}}
{{- if and (kindIs "map" $object) (regexMatch "^([a-z0-9]+/|[a-z.]+[.]k8s[.]io/)?v[0-9a-z]+$" (toString $object.apiVersion)) -}}
{{- include "csi-control-plane.strings" (dict "in" $object "path" (printf "extraObjects[%d]." $index) "strings" $strings) -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values "isComplete" true -}}
{{- include "csi-control-plane.followLiveness" . -}}
{{- end -}}
{{- end -}}

{{- define "csi-control-plane.completeSection" -}}
{{- range $key, $default := .defaults -}}
{{- $value := index $.in $key -}}
{{- $isSection := and (kindIs "map" $default) (not (has $key (list "labels" "liveness" "nodeSelector" "podSecurityContext" "readiness" "resources" "securityContext" "updateStrategy"))) -}}
{{- if not (kindIs "invalid" $value) -}}
{{- /* The configuration's own sections may be empty: the daemon knows their defaults. */ -}}
{{- if and $isSection (not (has $key (list "csi" "roles"))) -}}
{{- include "csi-control-plane.completeSection" (dict "in" $value "defaults" $default) -}}
{{- end -}}
{{- else if kindIs "bool" $default -}}
{{- $_ := set $.in $key false -}}
{{- else if and $default (eq $key "priorityClassName") -}}
{{- $_ := set $.in $key "" -}}
{{- else if eq $key "terminationGracePeriodSeconds" -}}
{{- $_ := set $.in $key nil -}}
{{- else if and (kindIs "slice" $default) (ne $key "apiPorts") -}}
{{- $_ := set $.in $key list -}}
{{- else if and (kindIs "map" $default) (not $isSection) -}}
{{- $_ := set $.in $key dict -}}
{{- else -}}
{{- $_ := set $.in $key $default -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Makes texts, in place, of the numbers and switches that YAML has read where Kubernetes wants texts: (dict "in" MAP "path" PATH
"strings" KEYS). KEYS: the keys of texts, of lists of them, and of maps of them. A null in such a map or in a list is as if it were not there. */}}
{{- define "csi-control-plane.strings" -}}
{{- range $key, $value := .in -}}
{{- $path := printf "%s%s" $.path $key -}}
{{- if kindIs "map" $value -}}
{{- if has $key $.strings.maps -}}
{{- range $name, $text := $value -}}
{{- if kindIs "invalid" $text -}}
{{- $_ := unset $value $name -}}
{{- else -}}
{{- $_ := set $value $name (include "csi-control-plane.string" (list $text (printf "%s.%s" $path $name))) -}}
{{- end -}}
{{- end -}}
{{- else if not (has $key (list "limits" "requests")) -}}
{{- include "csi-control-plane.strings" (dict "in" $value "path" (printf "%s." $path) "strings" $.strings) -}}
{{- end -}}
{{- else if kindIs "slice" $value -}}
{{- $items := list -}}
{{- range $index, $item := $value -}}
{{- $at := printf "%s[%d]" $path $index -}}
{{- if kindIs "map" $item -}}
{{- include "csi-control-plane.strings" (dict "in" $item "path" (printf "%s." $at) "strings" $.strings) -}}
{{- else if and (has $key $.strings.lists) (not (kindIs "invalid" $item)) -}}
{{- $item = include "csi-control-plane.string" (list $item $at) -}}
{{- end -}}
{{- if not (kindIs "invalid" $item) -}}{{- $items = append $items $item -}}{{- end -}}
{{- end -}}
{{- $_ := set $.in $key $items -}}
{{- else if and (has $key $.strings.texts) (not (kindIs "invalid" $value)) -}}
{{- $_ := set $.in $key (include "csi-control-plane.string" (list $value $path)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The text of a value: (list VALUE PATH). A whole number and a switch have one. Of a fraction and of a number above 2^53, YAML does not
keep how they were written: 1.10 would become "1.1". */}}
{{- define "csi-control-plane.string" -}}
{{- $value := first . -}}
{{- $written := toJson $value -}}
{{- if hasPrefix "\"" $written -}}
{{- $value -}}
{{- else if not (regexMatch "^(true|false|-?[0-9]{1,15})$" $written) -}}
{{- fail (printf "%s is %s, and Kubernetes wants a text here: write it in quotes" (last .) (regexMatch "^[-0-9]" $written | ternary (printf "the number %s" $written) "no text")) -}}
{{- else -}}
{{- $written -}}
{{- end -}}
{{- end -}}
