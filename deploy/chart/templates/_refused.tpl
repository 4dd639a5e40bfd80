{{- /* Values that fit the schema one by one, but not together. */}}
{{- define "stint.refused" -}}
{{- if not (regexMatch "^[a-z]" (include "stint.fullname" .)) }}
{{- fail "the release's name begins with a digit, which a Service's name may not: set fullnameOverride" }}
{{- end }}
{{- $server := default dict .Values.config.server }}
{{- $known := not .Values.existingConfigMap }}
{{- $redis := include "stint.hasRedis" . }}
{{- if and .Values.gateway.enabled $known (not .Values.gateway.upstream) (not $server.routes) }}
{{- fail "gateway.upstream: say where your application is, such as http://shop:80, or set config.server.routes, or gateway.enabled: false" }}
{{- end }}
{{- if not (or .Values.gateway.enabled .Values.check.enabled .Values.envoy.enabled) }}
{{- fail "nobody can ask this server: enable gateway, check or envoy" }}
{{- end }}
{{- if and .Values.redis.url .Values.redis.secret.url }}
{{- fail "redis: url and secret.url are two addresses: set one of them" }}
{{- end }}
{{- if and .Values.redis.secret.url (not .Values.redis.secret.name) }}
{{- fail "redis.secret.url is a key of a Secret: set redis.secret.name, too" }}
{{- end }}
{{- if and .Values.redis.secret.url .Values.redis.secret.files }}
{{- fail "redis.secret: with url, files are not added to it: name them in the URL, such as password_file=/run/secrets/redis/password" }}
{{- end }}
{{- if and .Values.redis.secret.files (not .Values.redis.secret.name) }}
{{- fail "redis.secret.files are keys of a Secret: set redis.secret.name, too" }}
{{- end }}
{{- if and .Values.redis.password .Values.redis.secret.name }}
{{- fail "redis: password and secret.name are two Secrets: set one of them" }}
{{- end }}
{{- if and (or .Values.redis.password .Values.redis.secret.name) (not $redis) }}
{{- fail "redis.url: say where Redis is, such as redis://redis:6379" }}
{{- end }}
{{- range $parameter, $_ := ternary .Values.redis.secret.files (dict "password_file" "") (ne .Values.redis.secret.name "") }}
{{- if and (has $parameter (list "ca" "cert" "key")) (not (hasPrefix "rediss" $.Values.redis.url)) }}
{{- fail (printf "redis.secret.files.%s is for TLS: begin redis.url with rediss" $parameter) }}
{{- end }}
{{- if and (eq $parameter "sentinel_password_file") (not (contains "+sentinel:" $.Values.redis.url)) }}
{{- fail "redis.secret.files.sentinel_password_file is for Sentinels: redis.url begins with redis+sentinel or rediss+sentinel" }}
{{- end }}
{{- if and (eq $parameter "password_file") (or $.Values.redis.password $.Values.redis.secret.name) (regexMatch "://[^@/?]*:[^@/?]*@" $.Values.redis.url) }}
{{- fail "redis.url has a password, and password or secret.files has another: take it out of the URL" }}
{{- end }}
{{- if regexMatch (printf "[?&]%s=" $parameter) $.Values.redis.url }}
{{- fail (printf "redis.url has the parameter %s, which secret.files adds: set one of them" $parameter) }}
{{- end }}
{{- end }}
{{- if and $known (not $redis) (or .Values.autoscaling.enabled (gt (int .Values.replicas) 1)) }}
{{- fail "redis.url: without Redis, each replica would give every client the whole limit; set redis.url, or replicas: 1 and autoscaling.enabled: false" }}
{{- end }}
{{- if eq .Values.existingConfigMap (include "stint.fullname" .) }}
{{- fail "existingConfigMap: this is the name of the chart's own ConfigMap, which Helm removes when it is not used: give yours another name" }}
{{- end }}
{{- if and .Values.envoy.existingConfigMap (eq .Values.envoy.existingConfigMap (printf "%s-envoy" (include "stint.fullname" .))) }}
{{- fail "envoy.existingConfigMap: this is the name of the chart's own ConfigMap, which Helm removes when it is not used: give yours another name" }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}
{{- fail "autoscaling: minReplicas is more than maxReplicas" }}
{{- end }}
{{- if and .enabled (not (dig "requests" "cpu" "" (default dict $.Values.resources))) }}
{{- fail "autoscaling: targetCPU is a part of resources.requests.cpu: set it" }}
{{- end }}
{{- end }}
{{- with .Values.gateway }}
{{- if and .enabled .service.externalTrafficPolicy (eq .service.type "ClusterIP") }}
{{- fail "gateway.service.externalTrafficPolicy is for the types LoadBalancer and NodePort" }}
{{- end }}
{{- end }}
{{- $check := default dict $server.check }}
{{- if and .Values.check.enabled $known (not (or $check.tokens $check.clients $check.open)) }}
{{- fail "check.enabled: callers must identify themselves: set config.server.check.tokens, such as [{name: ingress, file: /run/secrets/stint-check/ingress}], and secrets: [stint-check]" }}
{{- end }}
{{- $admin := default dict $server.admin }}
{{- if and .Values.admin.enabled $known (not (or $admin.tokens $admin.clients)) }}
{{- fail "admin.enabled: callers must identify themselves: set config.server.admin.tokens, such as [{name: deploy, scope: write, file: /run/secrets/stint-admin/token}], and secrets: [stint-admin]" }}
{{- end }}
{{- if and .Values.envoy.descriptors .Values.envoy.existingConfigMap }}
{{- fail "envoy: descriptors and existingConfigMap are two sets of files: set one of them" }}
{{- end }}
{{- if and $known (eq (default "file" $server.rules) "fleet") (not $redis) }}
{{- fail "redis.url: config.server.rules is fleet, and the fleet's rules are in Redis" }}
{{- end }}
{{- if .Values.push.enabled }}
{{- if not (and .Values.admin.enabled .Values.push.rules .Values.push.secret.name) }}
{{- fail "push.enabled: it needs admin.enabled, push.rules and push.secret.name" }}
{{- end }}
{{- if and $admin.tls (not .Values.push.url) }}
{{- fail "push.url: the admin API has TLS: set its URL, such as https://stint-api:8090, and flags: [--ca, FILE]" }}
{{- end }}
{{- if and $known (ne (default "file" $server.rules) "fleet") }}
{{- fail "push.enabled: the instances take pushed rules only with config: {server: {rules: fleet}}" }}
{{- end }}
{{- end }}
{{- end }}
