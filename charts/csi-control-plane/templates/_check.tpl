{{/* What files/checks.yaml says against the configuration: every fault, in the words of `csi-control-plane check`; else nothing. */}}
{{- define "csi-control-plane.check" -}}
{{- $table := .Files.Get "files/checks.yaml" | fromYaml -}}
{{- $config := include "csi-control-plane.config" . | fromYaml -}}
{{- $faults := dict -}}
{{- range $key, $text := $table.durations -}}
{{- if eq "true" (include "csi-control-plane.isChecked" (dict "config" $config "key" $key)) -}}
{{- $_ := include "csi-control-plane.checkDuration" (dict "table" $table.durations "config" $config "key" $key "faults" $faults) -}}
{{- end -}}
{{- end -}}
{{- range $key, $rule := $table.texts -}}
{{- $found := include "csi-control-plane.value" (dict "in" $config "key" $key) | fromJson -}}
{{- if hasKey $found "value" -}}
{{- $text := toString $found.value -}}
{{- if or (not (regexMatch $rule.pattern $text)) (and $rule.longest (gt (len $text) (int $rule.longest))) -}}
{{- /* Before an @ there may be a password. */ -}}
{{- $_ := set $faults $key (list (regexReplaceAllLiteral (ternary "^.*@" "//[^/]*@" (hasSuffix "traces.endpoint" $key)) $text "" | printf "%q") $rule.allowed) -}}
{{- else if and $rule.bytes (gt (trimSuffix "/" $text | len) (int ($rule.bytes | default dict).most)) -}}
{{- $_ := set $faults $key (list (len $text | printf "a path of %d bytes") $rule.bytes.allowed) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key, $rule := $table.lists -}}
{{- $found := include "csi-control-plane.value" (dict "in" $config "key" $key) | fromJson -}}
{{- if has "" ($found.value | default list) -}}{{- $_ := set $faults $key (list "\"\"" $rule.allowed) -}}{{- end -}}
{{- end -}}
{{- range $key, $rule := $table.numbers -}}
{{- $found := include "csi-control-plane.value" (dict "in" $config "key" $key) | fromJson -}}
{{- if gt (int64 ($found.value | default 0)) (int64 $rule.most) -}}
{{- $_ := set $faults $key (list (printf "%d" (int64 $found.value)) $rule.allowed) -}}
{{- end -}}
{{- end -}}
{{- /* A socket's address has room for a path of 107 bytes. */ -}}
{{- $path := include "csi-control-plane.socketPath" . -}}
{{- if and (ne .Values.mode "cluster") (not (hasKey $faults "csi.endpoint")) (gt (len $path) 107) -}}
{{- $_ := set $faults "csi.endpoint" (list (printf "a path of %d bytes" (len $path)) "a socket path of at most 107 bytes") -}}
{{- end -}}
{{- $labels := include "csi-control-plane.value" (dict "in" $config "key" "leaderElection.labels") | fromJson -}}
{{- range $name, $value := $labels.value -}}
{{- $isName := regexMatch "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $name -}}
{{- $isValue := regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value -}}
{{- if not (and $isName $isValue (le (len (dir $name)) 253)) -}}
{{- $_ := set $faults "leaderElection.labels" (list (printf "%q: %q" $name $value) "Kubernetes labels: [prefix/]name and value of at most 63 of A-Z, a-z, 0-9, -, _ and .") -}}
{{- end -}}
{{- end -}}
{{- if $faults -}}
{{- $count := len $faults -}}
{{- $told := printf "the configuration has %d %s" $count (ternary "fault" "faults" (eq $count 1)) -}}
{{- range $key, $fault := $faults -}}
{{- $told = printf "%s\n\n  %sconfig.%s\n    found:   %s\n    allowed: %s" $told ($.Values.where | default "") $key (first $fault) (last $fault) -}}
{{- end -}}
{{- $told -}}
{{- end -}}
{{- end -}}

{{/* Adds a fault if the duration of `key` is none or breaks a rule. */}}
{{- define "csi-control-plane.checkDuration" -}}
{{- $entry := get .table .key -}}
{{- $found := include "csi-control-plane.value" (dict "in" .config "key" .key) | fromJson -}}
{{- $text := $found.value | default $entry.default | default "" | toString -}}
{{- if $text -}}
{{- $length := include "csi-control-plane.nanoseconds" $text | int64 -}}
{{- /* The daemon's limit is a year, and a billionth of a unit. */ -}}
{{- if or (gt $length 31536000000000000) (regexMatch "[.][0-9]{10}" $text) -}}
{{- $_ := set .faults .key (list (toJson $text) (printf "a duration with its unit, such as 15s or 1m30s, up to 8760h%s" (ternary "" ", or null" (toString $entry.default | regexMatch "[0-9]")))) -}}
{{- else -}}
{{- range $rule := $entry.rules -}}
{{- $bound := $rule.above | default $rule.least | default $rule.below -}}
{{- if hasKey $.table $bound -}}
{{- $other := include "csi-control-plane.value" (dict "in" $.config "key" $bound) | fromJson -}}
{{- $bound = $other.value | default (get $.table $bound).default -}}
{{- end -}}
{{- $limit := include "csi-control-plane.nanoseconds" $bound | int64 -}}
{{- $isKept := true -}}
{{- if and $rule.if (eq "false" (include "csi-control-plane.at" (dict "in" $.config "key" $rule.if))) -}}{{- /* The rule does not count. */ -}}
{{- else if $rule.above -}}{{- $isKept = gt $length $limit -}}
{{- else if $rule.least -}}{{- $isKept = or (ge $length $limit) (and $rule.never (eq $length 0)) -}}
{{- else -}}{{- $isKept = lt (mulf $length ($rule.times | default 1)) (float64 $limit) -}}
{{- end -}}
{{- if not (or $isKept (hasKey $.faults $.key)) -}}
{{- $allowed := $rule.allowed | replace "%s" (include "csi-control-plane.duration" $limit) -}}
{{- $_ := set $.faults $.key (list (include "csi-control-plane.duration" $length) $allowed) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" unless the key is one of a role that is not enabled. */}}
{{- define "csi-control-plane.isChecked" -}}
{{- $path := splitList "." .key -}}
{{- or (ne (first $path) "roles") (hasKey (.config.roles | default dict) (index $path 1)) -}}
{{- end -}}

{{/* What is wrong with a driver whose containers do not mount the folder of its socket; else nothing. */}}
{{- define "csi-control-plane.checkMounts" -}}
{{- $folder := .Values.socket.hostPath | trimSuffix "/" -}}
{{- $volumes := list .Values.socket.volume -}}
{{- /* A container may reach a folder of the node through another volume of its own. */ -}}
{{- range .Values.driver.volumes -}}
{{- $path := (.hostPath | default dict).path | default "" | trimSuffix "/" -}}
{{- if and $folder .hostPath (hasPrefix (printf "%s/" $path) (printf "%s/" $folder)) -}}{{- $volumes = append $volumes .name -}}{{- end -}}
{{- end -}}
{{- $isMounted := false -}}
{{- range concat .Values.driver.containers .Values.driver.initContainers -}}
{{- range .volumeMounts -}}
{{- if has .name $volumes -}}{{- $isMounted = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $isMounted -}}
{{- printf "%sdriver.containers: no container mounts the volume %q, so the daemon would wait for the driver's socket without end. Add it to the driver's container: volumeMounts: [{name: %s, mountPath: /csi}]. The driver then has to listen on /csi/%s" (.Values.where | default "") .Values.socket.volume .Values.socket.volume (include "csi-control-plane.socketPath" . | base) -}}
{{- end -}}
{{- end -}}

{{/* A warning if the driver's container names sockets in the folder of the socket, and none as csi.endpoint does; else nothing. */}}
{{- define "csi-control-plane.otherSocket" -}}
{{- $wanted := include "csi-control-plane.socketPath" . | base -}}
{{- $others := list -}}
{{- $isNamed := false -}}
{{- range concat .Values.driver.containers .Values.driver.initContainers -}}
{{- $words := toString .args | printf "%s %s" (toString .command) -}}
{{- range .env -}}{{- $words = printf "%s %s" $words (toString .value) -}}{{- end -}}
{{- range .volumeMounts -}}
{{- if eq .name $.Values.socket.volume -}}
{{- range regexFindAll (printf "%s/[-A-Za-z0-9_.]+" (toString .mountPath | trimSuffix "/" | replace "." "[.]")) $words -1 -}}
{{- if eq (base .) $wanted -}}{{- $isNamed = true -}}{{- else -}}{{- $others = append $others . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $others (not $isNamed) -}}
the driver's container names {{ $others | uniq | join " and " }}, and the daemon connects to {{ $wanted }} in the same folder. If the driver listens on {{ first $others }}, set config.csi.endpoint: unix://{{ include "csi-control-plane.socketPath" . | dir }}/{{ first $others | base }}
{{- end -}}
{{- end -}}
