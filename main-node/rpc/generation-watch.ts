/** How far a request is. Called at every step; nothing may be thrown. */
export interface GenerationWatch {
  /** It waits for its turn; `before`: requests that wait before it. */
  queued(before: number): void;
  /** It runs; of its prompt's tokens so many are done. */
  prefill(doneTokens: number, promptTokens: number): void;
  /** Each token of the answer. */
  token(): void;
}

export const NOBODY_WATCHES: GenerationWatch = {
  queued: () => undefined,
  prefill: () => undefined,
  token: () => undefined,
};
