{{- /* The Secret with files of Redis: one that exists, or the chart's; else nothing. */}}
{{- define "stint.redisSecret" -}}
{{- if .Values.redis.secret.name }}
{{- .Values.redis.secret.name }}
{{- else if .Values.redis.password }}
{{- include "stint.fullname" . }}-redis-password
{{- end }}
{{- end }}

{{- /* The URL of Redis with the files of the Secret as parameters. */}}
{{- define "stint.redisURL" -}}
{{- $files := dict }}
{{- if .Values.redis.secret.name }}
{{- $files = .Values.redis.secret.files }}
{{- else if .Values.redis.password }}
{{- $files = dict "password_file" "password" }}
{{- end }}
{{- $url := .Values.redis.url }}
{{- range $parameter, $key := $files }}
{{- $url = printf "%s%s%s=/run/secrets/redis/%s" $url (ternary "&" "?" (contains "?" $url)) $parameter $key }}
{{- end }}
{{- $url }}
{{- end }}

{{- define "stint.hasRedis" -}}
{{- if or .Values.redis.url .Values.redis.secret.url }}true{{ end }}
{{- end }}
