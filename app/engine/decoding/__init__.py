"""One answer: prompt and template, sampling, accept rules, the draft–verify loop, text and figures. No Qt."""
