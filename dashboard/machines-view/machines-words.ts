import type { AcceptedMachineView, WaitingMachineView } from '../../shared/wire/cluster-machines.js';
import { formatDuration } from '../../shared/base/text/units.js';

/** For example "2 machines wait to be let in"; empty: none waits. */
export function waitingWords(machines: number): string {
  if (machines === 0) return '';
  return machines === 1 ? '1 machine waits to be let in' : `${machines} machines wait to be let in`;
}

/** The result of wrong codes. */
export function wrongCodeWords(left: number): string {
  if (left === 1) return 'One more wrong code sends every waiting machine away.';
  return `${left} wrong codes send every waiting machine away.`;
}

/** The facts about a machine that waits, one text each. */
export function waitingFacts({ device, address, waitedMs }: Omit<WaitingMachineView, 'id' | 'role'>): string[] {
  return [...knownFacts([device, address]), `has waited ${formatDuration(waitedMs)}`];
}

/** The facts that are known. */
export function knownFacts(facts: readonly string[]): string[] {
  return facts.filter((fact) => fact !== '');
}

/** The line for an operator who has let a machine in. */
export function acceptedWords({ id, role, device, address, words }: AcceptedMachineView): string {
  const facts = knownFacts([role, device, address]).join(', ');
  return `${id} (${facts}) is in the cluster. Look at its screen: it must show the words "${words}". If it shows others, remove it.`;
}
