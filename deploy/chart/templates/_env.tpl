{{- /* Settings that the chart decides. Variables override the file, so the file is the same anywhere. */}}
{{- define "stint.env" -}}
- {name: STINT_SERVER_LISTEN, value: {{ ternary ":8080" "127.0.0.1:8080" .Values.gateway.enabled | quote }}}
- {name: STINT_SERVER_CHECK_LISTEN, value: {{ ternary ":8082" "127.0.0.1:8082" .Values.check.enabled | quote }}}
- {name: STINT_SERVER_PROBE_LISTEN, value: ":8083"}
- {name: STINT_SERVER_ADMIN_LISTEN, value: {{ ternary ":8090" "127.0.0.1:8090" .Values.admin.enabled | quote }}}
{{- if .Values.envoy.enabled }}
- {name: STINT_SERVER_ENVOY_LISTEN, value: ":8081"}
{{- if or .Values.envoy.descriptors .Values.envoy.existingConfigMap }}
- {name: STINT_SERVER_ENVOY_DIRECTORY, value: /etc/stint-envoy}
{{- end }}
{{- end }}
{{- if .Values.redis.secret.url }}
- name: STINT_SERVER_STORE
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.secret.name | toYaml }}, key: {{ .Values.redis.secret.url | quote }}}}
{{- else if .Values.redis.url }}
- {name: STINT_SERVER_STORE, value: {{ include "stint.redisURL" . | quote }}}
{{- end }}
- {name: STINT_SERVER_STATE_DIR, value: /var/lib/stint/state} # made by Stint for its user alone, which an emptyDir is not
- {name: STINT_SERVER_STOP_DELAY, value: {{ printf "%ds" (int .Values.stop.delaySeconds) }}}
- {name: STINT_SERVER_STOP_TIMEOUT, value: {{ printf "%ds" (int .Values.stop.timeoutSeconds) }}}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
