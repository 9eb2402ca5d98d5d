{{/* "true" if the registrar reads the node's CSINode: it then needs NODE_NAME and a token. */}}
{{- define "csi-control-plane.readsCsiNode" -}}
{{- $interval := include "csi-control-plane.at" (dict "in" .Values.config "key" "roles.registrar.csiNodeInterval") -}}
{{- if and (eq .Values.mode "node") (regexMatch "[1-9]" $interval) -}}true{{- end -}}
{{- end -}}

{{/* The value of a dotted key, as text; "" if the key is missing, or if a part of its path is null: a section may be empty. */}}
{{- define "csi-control-plane.at" -}}
{{- $found := include "csi-control-plane.value" . | fromJson -}}
{{- if hasKey $found "value" -}}{{- toString $found.value -}}{{- end -}}
{{- end -}}

{{/* The value of a dotted key, as {"value": …}; {} if the key is missing or null. */}}
{{- define "csi-control-plane.value" -}}
{{- $at := .in -}}
{{- $isThere := true -}}
{{- range splitList "." .key -}}
{{- if and $isThere (kindIs "map" $at) -}}
{{- $isThere = hasKey $at . -}}
{{- $at = get $at . -}}
{{- else -}}
{{- $isThere = false -}}
{{- end -}}
{{- end -}}
{{- if and $isThere (not (kindIs "invalid" $at)) -}}{{- toJson (dict "value" $at) -}}{{- else -}}{}{{- end -}}
{{- end -}}

{{/* The configuration file: `config`, and the keys that follow from other values. */}}
{{- define "csi-control-plane.config" -}}
{{- include "csi-control-plane.complete" . -}}
{{- $config := deepCopy .Values.config -}}
{{- /* As in values.yaml, also for users who have emptied the section. */ -}}
{{- $csi := get $config "csi" | default dict -}}
{{- if or (not (hasKey $csi "endpoint")) (kindIs "invalid" (get $csi "endpoint")) -}}
{{- $_ := set $csi "endpoint" "unix:///run/csi/csi.sock" -}}
{{- end -}}
{{- $_ := set $config "csi" $csi -}}
{{- if eq .Values.mode "cluster" -}}
{{- /* There is no driver; and the Lease is where that of a release in another namespace is, too. */ -}}
{{- $_ := unset $config "csi" -}}
{{- $election := get $config "leaderElection" | default dict -}}
{{- if not $election.namespace -}}{{- $_ := set $election "namespace" "kube-system" -}}{{- end -}}
{{- $_ := set $config "leaderElection" $election -}}
{{- end -}}
{{- if include "csi-control-plane.perNode" . -}}
{{- $election := get $config "leaderElection" | default dict -}}
{{- $_ := set $election "enabled" false -}}
{{- $_ := set $config "leaderElection" $election -}}
{{- end -}}
{{- if .Values.hostNetwork -}}
{{- $address := include "csi-control-plane.hostAddress" . -}}
{{- $diagnostics := get $config "diagnostics" | default dict -}}
{{- if not (hasKey $diagnostics "listen") -}}{{- $_ := set $diagnostics "listen" $address -}}{{- end -}}
{{- $_ := set $config "diagnostics" $diagnostics -}}
{{- if include "csi-control-plane.choosesLiveness" . -}}
{{- /* At the address of the diagnostics: the node needs no further port. */ -}}
{{- $liveness := get $config.roles "liveness" | default dict -}}
{{- $_ := set $liveness "listen" ($diagnostics.listen | default $address) -}}
{{- $_ := set $config.roles "liveness" $liveness -}}
{{- end -}}
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

{{/* The path of the driver's socket in the daemon's container. The endpoint may be unix:///path, unix:/path or /path. */}}
{{- define "csi-control-plane.socketPath" -}}
{{- $config := include "csi-control-plane.config" . | fromYaml -}}
{{- regexReplaceAllLiteral "^unix:(//)?" (include "csi-control-plane.at" (dict "in" $config "key" "csi.endpoint")) "" -}}
{{- end -}}

{{/* A duration of the configuration, such as 1m30s or 1.5h, in whole nanoseconds. Above a year: one nanosecond more than a year. */}}
{{- define "csi-control-plane.nanoseconds" -}}
{{- $units := dict "ns" 1.0 "us" 1e3 "µs" 1e3 "ms" 1e6 "s" 1e9 "m" 6e10 "h" 3.6e12 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ns|us|µs|ms|s|m|h)" (toString .) -1 -}}
{{- $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexFind "[a-zµ]+$" .))) -}}
{{- end -}}
{{- if gt $sum 31536000000000000.0 -}}31536000000000001{{- else -}}{{- printf "%d" (int64 $sum) -}}{{- end -}}
{{- end -}}

{{/* Nanoseconds as the daemon writes them: 1m30s, 250ms, 0s. */}}
{{- define "csi-control-plane.duration" -}}
{{- $rest := int64 . -}}
{{- $text := "" -}}
{{- range list (list "h" 3600000000000) (list "m" 60000000000) (list "s" 1000000000) (list "ms" 1000000) (list "us" 1000) (list "ns" 1) -}}
{{- $count := div $rest (last .) -}}
{{- if $count -}}{{- $text = printf "%s%d%s" $text $count (first .) -}}{{- end -}}
{{- $rest = mod $rest (last .) -}}
{{- end -}}
{{- $text | default "0s" -}}
{{- end -}}

{{/* The longest that a call to the driver may take, in seconds, rounded up: csi.timeout, or the time of a role's own calls. */}}
{{- define "csi-control-plane.callSeconds" -}}
{{- $config := include "csi-control-plane.config" . | fromYaml -}}
{{- $longest := include "csi-control-plane.at" (dict "in" $config "key" "csi.timeout") | default "15s" | include "csi-control-plane.nanoseconds" | int64 -}}
{{- $table := .Files.Get "files/checks.yaml" | fromYaml -}}
{{- range $role, $section := $config.roles -}}
{{- range list "timeout" "callTimeout" "resizeTimeout" "modifyTimeout" -}}
{{- $default := (get $table.durations (printf "roles.%s.%s" $role .) | default dict).default | default "0s" -}}
{{- $timeout := include "csi-control-plane.at" (dict "in" $section "key" .) | default $default -}}
{{- $longest = max $longest (include "csi-control-plane.nanoseconds" $timeout | int64) -}}
{{- end -}}
{{- end -}}
{{- div (add $longest 999999999) 1000000000 -}}
{{- end -}}

{{/* How long a pod may take to stop: a call in flight, then the API, the Leases and the last spans. */}}
{{- define "csi-control-plane.gracePeriod" -}}
{{- include "csi-control-plane.complete" . -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- max 45 (add (include "csi-control-plane.callSeconds" . | int) 30) -}}
{{- else -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{/* The address that the daemon listens on; empty if there is none. */}}
{{- define "csi-control-plane.listen" -}}
{{- $config := include "csi-control-plane.config" . | fromYaml -}}
{{- $diagnostics := get $config "diagnostics" | default dict -}}
{{- if not (and (hasKey $diagnostics "listen") (not $diagnostics.listen)) -}}
{{- $diagnostics.listen | default "[::]:8080" -}}
{{- end -}}
{{- end -}}

{{/* Its port. */}}
{{- define "csi-control-plane.port" -}}
{{- regexFind "[0-9]+$" (include "csi-control-plane.listen" .) -}}
{{- end -}}

{{/* "true" if no two pods of this release fit on one node: both would need the node's port, or the rule that keeps them apart is strict. */}}
{{- define "csi-control-plane.onePerNode" -}}
{{- if or (and .Values.hostNetwork (include "csi-control-plane.port" .)) (eq .Values.antiAffinity "required") -}}true{{- end -}}
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
