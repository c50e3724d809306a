/** Who asks, and how far a request is. Called at every step; nothing may be thrown. */
export interface GenerationWatch {
  /** A name that tells no key; clients share main fairly. Empty: nobody in particular. */
  readonly client: string;
  /** It waits for its turn; `before`: requests that wait before it. */
  queued(before: number): void;
  /** It runs; of its prompt's tokens so many are done. */
  prefill(doneTokens: number, promptTokens: number): void;
  /** Each token of the answer. */
  token(): void;
}

export const NOBODY_WATCHES: GenerationWatch = {
  client: '',
  queued: () => undefined,
  prefill: () => undefined,
  token: () => undefined,
};
