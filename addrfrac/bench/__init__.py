"""Problems x solutions x protocols as a queue of evaluations that can be resumed, and what the results say together."""
