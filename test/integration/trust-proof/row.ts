import type { ProofCluster } from './proof-cluster.js';

/** A line of the proof: what somebody does, and what both sides say to it. */
export interface Row {
  /** The action of the row, in words. */
  readonly done: string;
  act(cluster: ProofCluster): Promise<Seen>;
  /** Words at the side that asks: its standard error, or the error of a client in this process. */
  readonly here: RegExp;
  /** Words in the log of the daemon that is asked; null: it has nothing to say, because it was not reached or nothing is wrong. */
  readonly there: Words | null;
  /** Exit status of the process that asks; null: a client in this process asks, or a daemon that goes on. */
  readonly status: number | null;
}

export interface Words {
  readonly of: 'box' | 'plain' | 'jetson' | 'elder' | 'silo';
  readonly say: RegExp;
}

export interface Seen {
  readonly said: string;
  readonly status: number | null;
}

/** "CODE: words" of the error with which it ends; of a success, "none". */
export async function wordsOf(asked: Promise<unknown>): Promise<Seen> {
  const said = await asked.then(
    () => 'none',
    (thrown: unknown) => errorWords(thrown),
  );
  return { said, status: null };
}

export function errorWords(thrown: unknown): string {
  const { code = '', message } = thrown as Error & { code?: string };
  return `${code}: ${message}`;
}
