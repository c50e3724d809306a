/** The client of a request, and callbacks for its progress. They run at every step and must not throw. */
export interface GenerationWatch {
  /** A name that does not reveal the key; main shares itself fairly among clients. Empty: no client in particular. */
  readonly client: string;
  /** The request waits for its turn; `before`: requests that wait before it. */
  queued(before: number): void;
  /** The request runs; `doneTokens` of its prompt's tokens are done. */
  prefill(doneTokens: number, promptTokens: number): void;
  /** Called at each token of the answer. */
  token(): void;
}

export const NOBODY_WATCHES: GenerationWatch = {
  client: '',
  queued: () => undefined,
  prefill: () => undefined,
  token: () => undefined,
};
