{{/* Fields that `podSpec` may have: those of core/v1 PodSpec. A misspelt one would be dropped silently. */}}
{{- define "seedbed.validatePodSpecs" -}}
{{- $fields := list "activeDeadlineSeconds" "affinity" "automountServiceAccountToken" "dnsConfig" "dnsPolicy" "enableServiceLinks" "ephemeralContainers" "hostAliases" "hostIPC" "hostNetwork" "hostPID" "hostUsers" "hostname" "hostnameOverride" "imagePullSecrets" "nodeName" "nodeSelector" "os" "overhead" "preemptionPolicy" "priority" "priorityClassName" "readinessGates" "resourceClaims" "resources" "restartPolicy" "runtimeClassName" "schedulerName" "schedulingGates" "schedulingGroup" "securityContext" "serviceAccount" "serviceAccountName" "setHostnameAsFQDN" "shareProcessNamespace" "subdomain" "terminationGracePeriodSeconds" "tolerations" "topologySpreadConstraints" "workloadRef" -}}
{{- $lists := list "containers" "initContainers" "volumes" -}}
{{- range $role := list "learner" "actor" "replay" "cost" -}}
  {{- range $key, $_ := (get $.Values $role).podSpec -}}
    {{- if not (has $key (concat $fields $lists)) -}}
      {{- fail (printf "%s.podSpec.%s is no field of a pod's spec, and the API server would drop it: correct its spelling (kubectl explain pod.spec lists all), or leave it out" $role $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* An experiment's file of one document, without a key twice: Helm's parser takes the last one and
says nothing. Keys of flow mappings and of lists are not compared. */}}
{{- define "seedbed.validateExperimentFile" -}}
{{- $text := regexReplaceAll `\A(\s*(#[^\n]*)?\n)*---[ \t]*\n` (.Values.experimentFile | replace "\r\n" "\n") "" -}}
{{- if regexMatch `(?m)^---(\s|$)` $text -}}
  {{- fail "experimentFile has several documents (a line ---), and one experiment is one document: give one of them" -}}
{{- end -}}
{{- $parents := dict -}}
{{- $seen := dict -}}
{{- $blockAt := -1 -}}
{{- $listAt := -1 -}}
{{- range $line := splitList "\n" $text -}}
  {{- $indent := len (regexFind `^ *` $line) -}}
  {{- if and (trim $line) (not (hasPrefix "#" (trim $line))) -}}
    {{- if and (ge $blockAt 0) (le $indent $blockAt) }}{{ $blockAt = -1 }}{{ end -}}
    {{- if and (ge $listAt 0) (or (lt $indent $listAt) (and (eq $indent $listAt) (not (regexMatch `^ *-(\s|$)` $line)))) }}{{ $listAt = -1 }}{{ end -}}
    {{- if and (lt $listAt 0) (lt $blockAt 0) (regexMatch `^ *-(\s|$)` $line) }}{{ $listAt = $indent }}{{ end -}}
    {{- $key := regexFind `^ *["']?[\w.-]+["']?\s*:(\s|$)` $line | trim | trimSuffix ":" | trim | trimAll "\"'" -}}
    {{- if and $key (lt $blockAt 0) (lt $listAt 0) -}}
      {{- $path := $key -}}
      {{- $nearest := -1 -}}
      {{- range $at, $parent := $parents -}}
        {{- if and (lt (int $at) $indent) (gt (int $at) $nearest) }}{{ $nearest = int $at }}{{ $path = printf "%s.%s" $parent $key }}{{ end -}}
        {{- if gt (int $at) $indent }}{{ $_ := unset $parents $at }}{{ end -}}
      {{- end -}}
      {{- if hasKey $seen $path -}}
        {{- fail (printf "experimentFile: %s is there twice, and only the last one would count: leave one of them" $path) -}}
      {{- end -}}
      {{- $_ := set $seen $path true -}}
      {{- $_ := set $parents (toString $indent) $path -}}
      {{- if regexMatch `:\s+[|>][-+0-9]*\s*(#.*)?$` $line }}{{ $blockAt = $indent }}{{ end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
