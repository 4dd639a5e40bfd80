package phrase

// chinese has the Chinese text of each English one, in the terms of docs/zh-CN/glossary.md. Where the order of the
// arguments differs, they are numbered, as in %[2]s.
var chinese = map[constant]string{
	// What joins.
	"%s": "%s", "%s.": "%s。", "; ": "；", ", ": "，", ", or ": "，或",
	// Things that are counted.
	"key": "个键", "line": "行", "request": "个请求", "repetition": "次重复", "rule": "条规则",

	// Judgements of a replay.
	"under %s":                               "不到 %s",
	"refuses":                                "拒绝了",
	"would refuse":                           "本应拒绝",
	"It applies to no request of this log.":  "日志中没有适用此规则的请求。",
	"It %s nothing: no key reaches a limit.": "%s 0 个请求：没有键达到限额。",
	"It %s %s of only %s at least once: too few to judge by.":                                                         "总共只有 %[3]s，其中 %[2]s 个至少有一次%[1]s：太少，无法判断。",
	"It %s few keys (%s), and of no client whose other requests all passed.":                                          "%s的键很少（%s），其中没有其他请求全部通过的客户端。",
	"It %s %s of the keys, and of no client whose other requests all passed.":                                         "%s %s 的键，其中没有其他请求全部通过的客户端。",
	"It %s few keys (%s), but some are of clients whose other requests all passed: look at those.":                    "%s的键很少（%s），但有些属于其他请求全部通过的客户端：请查看这些客户端。",
	"It is probably too strict, or many clients misbehave: it %s %s of the keys at least once.":                       "规则可能过严，或者许多客户端行为不当：%s %s 的键至少一次。",
	"It is probably too strict: it %s %s of the keys at least once, also of clients whose other requests all passed.": "规则可能过严：%s %s 的键至少一次，其中也有其他请求全部通过的客户端。",
	"The log has no requests.":                                    "日志中没有请求。",
	"These rules refuse nothing of this log":                      "这些规则不拒绝此日志中的任何请求",
	"These rules refuse %s of the requests, of %s of the clients": "这些规则拒绝 %s 的请求，涉及 %s 的客户端",
	"%s newly refused, and %s newly passed":                       "新拒绝 %s 个，新放行 %s 个",
	"%s left out":                                                 "略去 %s",
	"%s not replayed":                                             "%s未重放",

	// Notes of a replay.
	"The rules are switched off (enabled: false), and refuse nothing.":                                                                                                                                                "规则已关闭（enabled: false），不拒绝任何请求。",
	"If each refused request is repeated after its Retry-After, at most %s times, %s of the log (%s) are refused at first; %s sent, and %s never pass.":                                                               "如果每个被拒绝的请求在其 Retry-After 之后重复，最多 %s 次，则日志中 %s（%s）起初被拒绝；共发出 %s，%s 个请求始终未通过。",
	"Refused clients are replayed as they came: they neither give up nor repeat; see --repeats.":                                                                                                                      "被拒绝的客户端按原样重放：既不放弃，也不重复；参见 --repeats。",
	"%s came from a trusted proxy, and the log has no other address: they count for the proxy.":                                                                                                                       "%s来自可信代理，而日志中没有其他地址：计在代理名下。",
	"There are more than %s clients: shares of them are of a sample.":                                                                                                                                                 "客户端多于 %s 个：其比例来自抽样。",
	"%s would be answered with 400, before any rule: they are malformed, or servers read them in different ways.":                                                                                                     "%s会在应用规则之前得到 400：它们格式错误，或者不同服务器的理解不同。",
	"The log has %s of the requests: each is replayed about %s times at once, so numbers of requests are estimates, and 1,000 requests of a key are seen as some %s to %s. Keys and clients are those of the sample.": "日志只有 %s 的请求：每个请求同时重放约 %s 次，因此请求数是估计值；一个键的 1000 个请求大约看成 %s 到 %s 个。键和客户端是样本中的。",
	"about %s": "约 %s",
	"Not replayed: %s reads %s, which this log lacks.": "未重放：%s 要读取 %s，而此日志没有。",
	"rule %s":               "规则 %s",
	"%s could not be read:": "%s无法读取：",
	"%s came too late to be replayed in order: see --disorder": "%s来得太晚，无法按顺序重放：参见 --disorder",
	"Interrupted: this is what was read until then.":           "已中断：这是到那时为止读到的内容。",

	// Suggested limits.
	"No limit can be suggested: %s.":                                                  "无法建议限额：%s。",
	"too few keys: want at least 20":                                                  "键太少，至少需要 20 个",
	"the costs are too large for a limit":                                             "消耗太大，限额无法表示",
	"%s in any %s":                                                                    "任意 %[2]s 内 %[1]s",
	"%s and %s in a burst above that rate":                                            "%s，突发高出该速率 %s",
	"%s of %s keys never used more than %s":                                           "%[2]s 个键中，%[1]s 的用量从未超过%[3]s",
	"%s, and the limit has a margin of %s, rounded up":                                "%s；限额留有 %s 的余量，向上取整",
	"%s with %s of the units":                                                         "%s，占单位数的 %s",
	"what was from %s to %s UTC":                                                      "%s 至 %s UTC 之间的请求",
	"%s; set apart: %s":                                                               "%s；另计：%s",
	"%s in %s, %s times the mean of the others":                                       "%[2]s 内 %[1]s，是其他键平均值的 %[3]s 倍",
	"%s cannot tell %s, which needs %s: the numbers are for %s.":                      "%[1]s不足以判断 %[2]s，那需要 %[3]s 个：这些数字对应 %[4]s。",
	"The log is too short for windows of %s and longer: they need one twice as long.": "日志太短，无法测量 %s 及更长的窗口：日志须有窗口的两倍长。",
	"The log is shorter than a day, and may miss the busiest hours.":                  "日志不足一天，可能没有最繁忙的时段。",
	"The log is shorter than a week, and may miss the busiest days.":                  "日志不足一周，可能没有最繁忙的日子。",
	"Of about %s keys, a sample of %s was measured.":                                  "键约有 %s 个，测量了其中抽样的 %s 个。",
	"No crawler and nobody who attacks was recognized.":                               "未识别出爬虫或攻击者。",
	"If keys set apart are customers, give them a tier of their own.":                 "如果另计的键是客户，请给他们单独的等级。",
	"From %s to %s UTC, many keys had peaks far above their usual ones. If such hours are wanted, they need a higher limit.": "%s 至 %s UTC 之间，许多键的峰值远高于平时。如果这样的时段属于正常，则需要更高的限额。",
	"The log has too few days to recognize one with an incident.":                                                            "日志天数太少，无法识别出事的那一天。",
	"Two limits touch more keys than one: they are higher than by the margin, so that together they leave %s untouched.":     "两条限额比一条涉及更多的键：因此它们高于余量，使 %s 的键合起来不受影响。",
	"Taken together, the limits leave only %s of the keys untouched.":                                                        "两条限额合起来，只有 %s 的键不受影响。",
}
