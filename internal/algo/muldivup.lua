-- mq = ⌈ma·mb/mc⌉, at most 2^52, for operands up to 2^52. Where the product is no
-- exact double, the division is done bit by bit, with a remainder that stays
-- below 2·mc.
if ma * mb < 4503599627370496 then
  mq = ceil(ma * mb / mc)
else
  local quotient, rest, bit = 0, 0, 4503599627370496
  local whole = floor(ma / mc)
  local part = ma - whole * mc
  local left = mb
  while bit >= 1 do
    quotient, rest = quotient * 2, rest * 2
    if rest >= mc then
      quotient, rest = quotient + 1, rest - mc
    end
    if left >= bit then
      left, rest = left - bit, rest + part
      if rest >= mc then
        quotient, rest = quotient + 1, rest - mc
      end
    end
    bit = bit / 2
  end
  mq = whole * mb + quotient
  if rest > 0 then
    mq = mq + 1
  end
  if mq > 4503599627370496 then
    mq = 4503599627370496
  end
end
