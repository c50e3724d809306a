/** What the models of a simulated cluster say: which experts are activated, what shadow predicts, which tokens it guesses. */
export interface ClusterTrace {
  /** Expert layers: the only ones that a trace knows. */
  readonly layers: number;
  readonly experts: number;
  readonly expertsPerToken: number;
  readonly prompts: number;
  promptTokens(prompt: number): number;
  /** Positions that decoding runs at most. */
  iterations(prompt: number): number;
  /** The choice of main's router: `expertsPerToken` experts by rank. Positions count from the prompt's first token. */
  activated(place: TracePlace): readonly number[];
  /** The choice of shadow's router, of positions from the prompt's end on. */
  predicted(place: TracePlace): readonly number[];
  /** Shadow's own guess at the token of this position, made behind main's earlier tokens, is main's token. */
  guessedRight(prompt: number, position: number): boolean;
}

export interface TracePlace {
  prompt: number;
  position: number;
  layer: number;
  /** The tokens up to and with this position are main's; else one of them is a wrong draft. */
  onPath: boolean;
}
