{{/* Fields that `pod.spec` may have: those of core/v1 PodSpec. A misspelt one would be dropped silently. */}}
{{- define "seedbed.validatePodSpecs" -}}
{{- $fields := list "activeDeadlineSeconds" "affinity" "automountServiceAccountToken" "dnsConfig" "dnsPolicy" "enableServiceLinks" "ephemeralContainers" "hostAliases" "hostIPC" "hostNetwork" "hostPID" "hostUsers" "hostname" "hostnameOverride" "imagePullSecrets" "nodeName" "nodeSelector" "os" "overhead" "preemptionPolicy" "priority" "priorityClassName" "readinessGates" "resourceClaims" "resources" "restartPolicy" "runtimeClassName" "schedulerName" "schedulingGates" "schedulingGroup" "securityContext" "serviceAccount" "serviceAccountName" "setHostnameAsFQDN" "shareProcessNamespace" "subdomain" "terminationGracePeriodSeconds" "tolerations" "topologySpreadConstraints" "workloadRef" -}}
{{- $lists := list "containers" "initContainers" "volumes" -}}
{{- range $where, $pod := dict "pod" .Values.pod "learner.pod" .Values.learner.pod "actor.pod" .Values.actor.pod "replay.pod" .Values.replay.pod "cost.pod" .Values.cost.pod -}}
  {{- range $key, $_ := get $pod "spec" | default dict -}}
    {{- if not (has $key (concat $fields $lists)) -}}
      {{- fail (printf "%s.spec.%s is no field of a pod's spec, and the API server would drop it: correct its spelling (kubectl explain pod.spec lists all), or leave it out" $where $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Keys of `pod` that cannot be of these roles. */}}
{{- define "seedbed.validateOwnPods" -}}
{{- if and .Values.pod.serviceAccount.name .Values.pod.serviceAccount.create -}}
  {{- fail (printf "pod.serviceAccount.name is %s and pod.serviceAccount.create is true: every role would make that account; say create: false for one that is there, or name it in one role's pod" .Values.pod.serviceAccount.name) -}}
{{- end -}}
{{- range $key := list "queueName" "queuePriorityClass" -}}
  {{- with get $.Values.cost.pod $key -}}
    {{- fail (printf "cost.pod.%s is %s: the cost meter is the brake, and waits in no queue; leave it out" $key .) -}}
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
