{{/* Several learners, and what the experiment says of them. */}}
{{- define "seedbed.validateLearners" -}}
{{- $experiment := include "seedbed.experimentValues" . | fromJson -}}
{{- $learner := .Values.learner -}}
{{- $replicas := int $learner.replicas -}}
{{- $gossip := get $experiment "gossip" | default dict -}}
{{- if and (hasKey $gossip "replicas") (ne (int $gossip.replicas) $replicas) -}}
  {{- fail (printf "learner.replicas is %d, and experiment.gossip.replicas is %v: the chart sets the count; leave it out, and say learner.replicas: %v for so many" $replicas $gossip.replicas $gossip.replicas) -}}
{{- end -}}
{{- if and (hasKey $gossip "topology") (ne $gossip.topology $learner.topology) -}}
  {{- fail (printf "learner.topology is %s, and experiment.gossip.topology is %s: the chart sets it; leave it out, and say learner.topology: %s" $learner.topology $gossip.topology $gossip.topology) -}}
{{- end -}}
{{- if get $gossip "addresses" -}}
  {{- fail (printf "experiment.gossip.addresses names %d addresses, and learner.replicas is %d: the chart sets them; leave them out" (len $gossip.addresses) $replicas) -}}
{{- end -}}
{{- end -}}
