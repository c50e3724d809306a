import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import { living } from '../../shared/base/runtime/living.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { livingBeyond } from '../left-behind.js';

/** Work of a part under test. Held work ends only when the test lets it go. */
export class HeldWork {
  private readonly waiting: (() => void)[] = [];
  private passing = Infinity;
  private held = 0;

  /** Number of works that have begun and are held. */
  get underWay(): number {
    return this.waiting.length;
  }

  /** From now on the first `after` works pass, and the next `works` are held. */
  holdNext({ works = 1, after = 0 } = {}): void {
    [this.passing, this.held] = [after, works];
  }

  letGo(): void {
    this.passing = Infinity;
    for (const end of this.waiting.splice(0)) end();
  }

  /** Runs `work` now, or when the test lets it go. */
  async whenLetGo<Result>(work: () => Result | Promise<Result>): Promise<Result> {
    if (this.passing > 0) this.passing -= 1;
    else if (this.held > 0) {
      this.held -= 1;
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
    return work();
  }

  /** The real runtime, whose work outside the event loop is held back. */
  runtime(): WallRuntime {
    return Object.assign(new WallRuntime(), {
      outside: <Result>(work: () => Promise<Result>): Promise<Result> => this.whenLetGo(work),
    });
  }
}

/** A part with work under way that is held back. */
export interface Closing {
  readonly close: () => Promise<unknown>;
  /** Lets the work end. */
  readonly letGo: () => unknown;
  /** Things that the part must release by its close, and only after its work has ended. Absent: none. */
  readonly holds?: () => readonly string[];
}

/** Fails if a close resolves or releases something while work is under way, or if a later close fails. */
export async function assertWaits({ close, letGo, holds = () => [] }: Closing): Promise<void> {
  const resolved: string[] = [];
  const closeAs = async (name: string): Promise<void> => {
    await close();
    resolved.push(name);
    assert.deepEqual(holds(), [], `held on to after ${name}`);
  };
  const held = [...holds()];
  const first = closeAs('the first close');
  await turns();
  assert.deepEqual(resolved, [], 'resolved while work is under way');
  const second = closeAs('the second close');
  await turns();
  assert.deepEqual(resolved, [], 'resolved while work is under way');
  assert.deepEqual(holds(), held, 'given up while work is under way');
  await letGo();
  await Promise.all([first, second]);
  await closeAs('a close after the end');
}

/** Adds a test for each part: its close waits for its work, and leaves nothing behind. */
export function itWaitsForWork(parts: Readonly<Record<string, () => Closing | Promise<Closing>>>): void {
  for (const [work, open] of Object.entries(parts))
    it(work, () => leavesNothing(async () => assertWaits(await open())));
}

/** Fails if `run` leaves anything behind that it began, even a timer that soon ends by itself. */
export async function leavesNothing<Result>(run: () => Promise<Result>): Promise<Result> {
  const before = living().names();
  const result = await run();
  assert.deepEqual(livingBeyond(before), [], 'left behind');
  return result;
}

/** Waits for many turns of the event loop and some file reads. Work that waits for nothing else has ended after them. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  for (let read = 0; read < 5; read += 1) await stat('.');
}
