import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import type { Runtime } from '../../shared/runtime/runtime.js';
import { WallRuntime } from '../../shared/runtime/wall-runtime.js';

/** Work of a part under test. Once it is held back, none of it ends until the test lets it go. */
export class HeldWork {
  private readonly waiting: (() => void)[] = [];
  private isHeld = false;

  /** Works that have begun and wait to be let go. */
  get underWay(): number {
    return this.waiting.length;
  }

  holdBack(): void {
    this.isHeld = true;
  }

  letGo(): void {
    this.isHeld = false;
    for (const end of this.waiting.splice(0)) end();
  }

  /** Does `work` now, or when it is let go. */
  async whenLetGo<Result>(work: () => Result | Promise<Result>): Promise<Result> {
    if (this.isHeld) await new Promise<void>((resolve) => this.waiting.push(resolve));
    return work();
  }

  /** The real runtime, whose work outside the event loop is held back. */
  runtime(): Runtime {
    return Object.assign(new WallRuntime(), {
      outside: <Result>(work: () => Promise<Result>): Promise<Result> => this.whenLetGo(work),
    });
  }
}

/** A part with work under way that is held back. */
export interface Closing {
  close(): Promise<unknown>;
  /** Lets the work end. */
  letGo(): unknown;
  /** What the work uses, and has been taken away from it. Left out: it uses nothing that goes. */
  taken?: () => readonly unknown[];
}

/** Fails where a close resolves, or takes something away, while work is under way, and where a further close does harm. */
export async function assertWaits({ close, letGo, taken = () => [] }: Closing): Promise<void> {
  const resolved: string[] = [];
  const closeAs = async (name: string): Promise<void> => {
    await close();
    resolved.push(name);
  };
  const first = closeAs('the first close');
  await turns();
  assert.deepEqual(resolved, [], 'resolved while work is under way');
  const second = closeAs('the second close');
  await turns();
  assert.deepEqual(resolved, [], 'resolved while work is under way');
  assert.deepEqual(taken(), [], 'taken away while work is under way');
  await letGo();
  await Promise.all([first, second]);
  const takenOnce = [...taken()];
  await close();
  assert.deepEqual(taken(), takenOnce, 'taken away again by a close after the end');
}

/** A test for each part: its close waits for its work. */
export function itWaitsForWork(parts: Readonly<Record<string, () => Closing | Promise<Closing>>>): void {
  for (const [work, open] of Object.entries(parts)) it(work, async () => assertWaits(await open()));
}

/** Enough of the event loop's turns, and of its threads for files, for whatever waits for nothing to end. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  for (let read = 0; read < 5; read += 1) await stat('.');
}
