{{/* Amounts of all resources and volumes: values that are amounts, and no request above its limit. */}}
{{- define "seedbed.validateAmounts" -}}
{{- range $role := list "learner" "actor" "replay" "cost" -}}
  {{- $values := get $.Values $role -}}
  {{- $found := dict "pod.shmSize" (include "seedbed.pod" (dict "root" $ "component" $role) | fromJson).shmSize "persistence.size" (dig "persistence" "size" "" $values) -}}
  {{- range $part := list "requests" "limits" -}}
    {{- range $kind, $amount := dig "resources" $part dict $values -}}
      {{- $_ := set $found (printf "resources.%s.%s" $part $kind) $amount -}}
    {{- end -}}
  {{- end -}}
  {{- range $key, $amount := $found -}}
    {{- $text := kindIs "invalid" $amount | ternary "" (toString $amount) -}}
    {{- if and $text (not (regexMatch `^([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[KMGTPE]i|[munkMGTPE])?$` $text)) -}}
      {{- fail (printf "%s.%s %q is no amount: say a number, alone or with one of k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, such as %s" $role $key $text (hasSuffix "cpu" $key | ternary "500m or 2" "10Gi")) -}}
    {{- end -}}
    {{- if and $text (regexMatch `(memory|ephemeral-storage|[sS]ize)$` $key) -}}
      {{- $bytes := include "seedbed.amount" $text | float64 -}}
      {{- if and (lt $bytes 1048576.0) (or (gt $bytes 0.0) (eq $key "persistence.size")) -}}
        {{- fail (printf "%s.%s %q is %v bytes, and less than 1Mi is hardly meant: say such as 10Gi (m is a thousandth)" $role $key $text $bytes) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- range $kind, $limit := dig "resources" "limits" dict $values -}}
    {{- $request := dig "resources" "requests" $kind "" $values -}}
    {{- if and $limit $request -}}
      {{- if gt (include "seedbed.amount" $request | float64) (include "seedbed.amount" $limit | float64) -}}
        {{- fail (printf "%s.resources.requests.%s is %v, and its limit is %v: no pod may ask for more than its limit; raise %s.resources.limits.%s, or ask for less" $role $kind $request $limit $role $kind) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
