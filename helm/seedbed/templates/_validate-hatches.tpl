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

{{/* An experiment's file of one document: Helm's parser reads the first one and says nothing. */}}
{{- define "seedbed.validateExperimentFile" -}}
{{- $text := regexReplaceAll `\A(\s*(#[^\n]*)?\n)*---[ \t]*\n` (.Values.experimentFile | replace "\r\n" "\n") "" -}}
{{- if regexMatch `(?m)^---(\s|$)` $text -}}
  {{- fail "experimentFile has several documents (a line ---), and one experiment is one document: give one of them" -}}
{{- end -}}
{{- end -}}
