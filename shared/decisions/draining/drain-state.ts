import { formatBytes } from '../../base/text/units.js';

/**
 * What a drained node waits for. 'finishing': it runs experts that were sent to it before. 'needed': no other worker is there that could run its
 * experts, so that it goes on. 'may go': nothing of the cluster needs it.
 */
export type DrainState = 'finishing' | 'needed' | 'may go';

/** `isUsed`: main gives it work all the same. `openExperts`: experts that it has not answered. Pure. */
export function drainState({ isUsed, openExperts }: { isUsed: boolean; openExperts: number }): DrainState {
  if (isUsed) return 'needed';
  return openExperts > 0 ? 'finishing' : 'may go';
}

/**
 * The workers that get work: those that are not drained. Where all are, answers go on with those that have work now: the others may have been told to
 * go. If these have gone, too, with all that are left. Pure.
 */
export function usedWorkers<Worker>(
  workers: readonly Worker[],
  isDrained: (worker: Worker) => boolean,
  hasWork: (worker: Worker) => boolean,
): Worker[] {
  const choices = [workers.filter((worker) => !isDrained(worker)), workers.filter(hasWork), [...workers]];
  return choices.find(({ length }) => length > 0) ?? [];
}

interface FetchedPart {
  readonly identity: { readonly id: string };
  readonly fetchNeededBytes: number;
  readonly fetchHeldBytes: number;
}

/**
 * Bytes of experts that the other workers still fetch of what they need without the drained one; answers wait for these once it has gone. null: no
 * other worker fetches experts, or it is a shadow. Pure.
 */
export function othersLackBytes(
  nodes: readonly FetchedPart[],
  { id, role }: { id: string; role: string },
): number | null {
  if (role !== 'worker') return null;
  const others = nodes.filter(({ identity, fetchNeededBytes }) => identity.id !== id && fetchNeededBytes > 0);
  if (others.length === 0) return null;
  return others.reduce((bytes, node) => bytes + Math.max(0, node.fetchNeededBytes - node.fetchHeldBytes), 0);
}

/**
 * The state of a drained node for people, as a part of a sentence behind its id. `state`: as main told it, perhaps a main of a later release.
 * `lackedBytes`: as othersLackBytes has it. Pure.
 */
export function drainWords(
  { state, openExperts }: { state: string; openExperts: number },
  lackedBytes: number | null = 0,
): string {
  const hasDone = state === ('may go' satisfies DrainState);
  if (hasDone && lackedBytes !== null && lackedBytes > 0) {
    return `is drained; others fetch ${formatBytes(lackedBytes)} of its experts first, from it, too, as long as it runs`;
  }
  if (hasDone) return 'is drained and may go: nothing in the cluster needs it';
  if (state === ('finishing' satisfies DrainState))
    return `is draining: it gets no new work, and ends ${openExperts === 1 ? '1 expert' : `${openExperts} experts`} first`;
  if (state === ('needed' satisfies DrainState))
    return 'is draining and goes on meanwhile: no other worker is there to take its experts over, so start one first';
  return `is draining: ${state}`;
}
