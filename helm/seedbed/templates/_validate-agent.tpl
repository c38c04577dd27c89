{{/* What an agent needs that other agents, and the defaults, do not have. */}}
{{- define "seedbed.validateAgent" -}}
{{- $experiment := include "seedbed.experimentValues" . | fromJson -}}
{{- $agent := get $experiment "agent" | default "vtrace" -}}
{{- $learner := get $experiment "learner" | default dict -}}
{{- $lstm := get $learner "lstm_units" | default 0 -}}
{{- $burnIn := dig "r2d2" "burn_in" 40 $experiment -}}
{{- if and (eq $agent "r2d2") $burnIn (not $lstm) -}}
  {{- fail (printf "experiment.r2d2.burn_in %v and experiment.learner.lstm_units 0: r2d2 has no recurrent state to warm up; say experiment.learner.lstm_units: 512, or experiment.r2d2.burn_in: 0" $burnIn) -}}
{{- end -}}
{{- $unroll := get $learner "unroll_length" | default 20 -}}
{{- if and (eq $agent "dqn") (ne (int $unroll) 1) -}}
  {{- fail (printf "experiment.agent is dqn, which trains on single transitions, and experiment.learner.unroll_length is %v: say experiment.learner.unroll_length: 1" $unroll) -}}
{{- end -}}
{{- if and (eq $agent "dqn") $lstm -}}
  {{- fail (printf "experiment.agent is dqn, which has no recurrent state, and experiment.learner.lstm_units is %v: say experiment.learner.lstm_units: 0, or experiment.agent: r2d2" $lstm) -}}
{{- end -}}
{{- $epochs := get $learner "epochs_per_batch" | default 1 -}}
{{- if and (has $agent (list "a2c" "r2d2" "dqn")) (ne (int $epochs) 1) -}}
  {{- fail (printf "experiment.agent is %s, and experiment.learner.epochs_per_batch is %v: %s; say experiment.learner.epochs_per_batch: 1" $agent $epochs (eq $agent "a2c" | ternary "an on-policy batch is used once" "each batch is drawn anew")) -}}
{{- end -}}
{{- end -}}
