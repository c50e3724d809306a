/** The behaviour of a simulated cluster's models: activated experts, shadow's predictions, and its guessed tokens. */
export interface ClusterTrace {
  /** Number of expert layers: a trace knows only these. */
  readonly layers: number;
  readonly experts: number;
  readonly expertsPerToken: number;
  readonly prompts: number;
  promptTokens(prompt: number): number;
  /** Most positions that decoding runs. */
  iterations(prompt: number): number;
  /** The choice of main's router: `expertsPerToken` experts by rank. Positions count from the prompt's first token. */
  activated(place: TracePlace): readonly number[];
  /** The choice of shadow's router, for positions from the prompt's end on. */
  predicted(place: TracePlace): readonly number[];
  /** True if shadow's guess for the token at this position, made after main's earlier tokens, is main's token. */
  guessedRight(prompt: number, position: number): boolean;
}

export interface TracePlace {
  prompt: number;
  position: number;
  layer: number;
  /** True if all tokens up to and including this position are main's; otherwise one of them is a wrong draft. */
  onPath: boolean;
}
