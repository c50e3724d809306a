import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import { living } from '../../shared/base/runtime/living.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { livingBeyond } from '../left-behind.js';

/** Work of a part under test, of which some does not end until the test lets it go. */
export class HeldWork {
  private readonly waiting: (() => void)[] = [];
  private passing = Infinity;
  private held = 0;

  /** Works that have begun and wait to be let go. */
  get underWay(): number {
    return this.waiting.length;
  }

  /** `works`: so many of those that begin from now on are held back. `after`: so many that begin before them are not. */
  holdNext({ works = 1, after = 0 } = {}): void {
    [this.passing, this.held] = [after, works];
  }

  letGo(): void {
    this.passing = Infinity;
    for (const end of this.waiting.splice(0)) end();
  }

  /** Does `work` now, or when it is let go. */
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
  /** What the part gives up when it closes, and not before its work has ended. Left out: nothing. */
  readonly holds?: () => readonly string[];
}

/** Fails where a close resolves, or gives something up, while work is under way, and where a further close does harm. */
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

/** A test for each part: its close waits for its work, and nothing that the part has begun is left then. */
export function itWaitsForWork(parts: Readonly<Record<string, () => Closing | Promise<Closing>>>): void {
  for (const [work, open] of Object.entries(parts))
    it(work, () => leavesNothing(async () => assertWaits(await open())));
}

/** Fails where `run` leaves behind what it has begun, be it a timer that soon ends by itself. */
export async function leavesNothing<Result>(run: () => Promise<Result>): Promise<Result> {
  const before = living().names();
  const result = await run();
  assert.deepEqual(livingBeyond(before), [], 'left behind');
  return result;
}

/** Enough of the event loop's turns, and of its threads for files, for whatever waits for nothing to end. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  for (let read = 0; read < 5; read += 1) await stat('.');
}
