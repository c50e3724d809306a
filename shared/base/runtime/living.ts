import type { EventEmitter } from 'node:events';

/** Kinds of things that must be ended after they are begun. */
export const LIVING_KINDS = [
  'timer',
  'turn',
  'work',
  'abort listener',
  'event listener',
  'channel',
  'stream',
  'thread',
  'file',
  'advertisement',
  'browser',
] as const;
export type LivingKind = (typeof LIVING_KINDS)[number];

interface LivingThing {
  readonly kind: LivingKind;
  readonly what: string | Caller;
}

/** The function that is called when the thing happens. Its text is the name of the thing, and is made only on request. */
type Caller = (...args: never[]) => unknown;

/** Most characters of a name that are shown. */
const NAME_CHARACTERS = 160;

/**
 * The registry of things that a process has begun and not ended: timers, listeners, channels, streams, threads, files. Each simulated process
 * has a separate registry (VirtualRuntime); a real process has one. A thing that is still in the registry after its owner has ended is a leak;
 * its name shows which code began it.
 */
export class Living {
  private readonly things = new Set<LivingThing>();

  /** The thing lives until the returned function is called. Further calls of that function have no effect. */
  begin(kind: LivingKind, what: string | Caller): () => void {
    const thing = { kind, what };
    this.things.add(thing);
    return () => {
      this.things.delete(thing);
    };
  }

  count(kind: LivingKind): number {
    let count = 0;
    for (const thing of this.things) if (thing.kind === kind) count += 1;
    return count;
  }

  /** Number of living things of each kind. */
  counts(): Record<LivingKind, number> {
    const counts = Object.fromEntries(LIVING_KINDS.map((kind) => [kind, 0])) as Record<LivingKind, number>;
    for (const { kind } of this.things) counts[kind] += 1;
    return counts;
  }

  /** A line for each thing of these kinds, oldest first. */
  names(kinds: readonly LivingKind[] = LIVING_KINDS): string[] {
    return [...this.things]
      .filter(({ kind }) => kinds.includes(kind))
      .map(
        ({ kind, what }) =>
          `${kind}: ${(typeof what === 'string' ? what : what.toString()).replace(/\s+/g, ' ').slice(0, NAME_CHARACTERS)}`,
      );
  }
}

const ofThisProcess = new Living();
let current = ofThisProcess;

/** The registry in which the code that runs now records the things that it begins. */
export function living(): Living {
  return current;
}

/** Sets the registry for the code that runs from now on: that of a simulated process, or, with null, that of this real process. */
export function liveIn(registry: Living | null): void {
  current = registry ?? ofThisProcess;
}

const NOTHING = (): void => undefined;

/**
 * Calls `run` once when the signal aborts, unless the returned function has been called before. A caller that no longer waits must call it,
 * because signals outlive their listeners. If the signal has already aborted, `run` is not called; check the signal first. Without a signal
 * nothing happens. No other code adds listeners to signals.
 */
export function onAbort(signal: AbortSignal | undefined, run: () => void): () => void {
  if (signal === undefined || signal.aborted) return NOTHING;
  const end = living().begin('abort listener', run);
  const heard = (): void => {
    end();
    run();
  };
  signal.addEventListener('abort', heard, { once: true });
  return () => {
    end();
    signal.removeEventListener('abort', heard);
  };
}

/**
 * Listens until the returned function is called. For emitters that outlive their listeners: sockets that are kept alive, servers, streams of the
 * process.
 */
export function onEvent<Argument>(emitter: EventEmitter, event: string, run: (argument: Argument) => void): () => void {
  const end = living().begin('event listener', run);
  emitter.on(event, run);
  return () => {
    end();
    emitter.off(event, run);
  };
}
