"""How long answers will be: distributions from history, siblings and what has been written (pure).

`forecast` holds the distribution, `predictor` the port, `ewma` and `blend` the two predictors,
`calibration` the figures that say how good they were.
"""
