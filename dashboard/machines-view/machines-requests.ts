import type { AcceptedMachineView, MachinesView } from '../../shared/wire/cluster-machines.js';

const MACHINES_URL = '/cluster/machines';
const ANSWER_LIMIT_MS = 10_000;

/** Main's answer, or the reason why there is none, as a sentence. */
export type Answer<Value> = { value: Value } | { problem: string };

export function readMachines(): Promise<Answer<MachinesView>> {
  return ask(MACHINES_URL, {}, (answer) => answer.json() as Promise<MachinesView>);
}

/** `code`: as it was typed. */
export function acceptMachine(code: string): Promise<Answer<AcceptedMachineView>> {
  const headers = { 'content-type': 'application/json' };
  const request = { method: 'POST', headers, body: JSON.stringify({ code }) };
  return ask(`${MACHINES_URL}/accept`, request, (answer) => answer.json() as Promise<AcceptedMachineView>);
}

export function removeMachine(id: string): Promise<Answer<null>> {
  return ask(`${MACHINES_URL}/${encodeURIComponent(id)}`, { method: 'DELETE' }, () => Promise.resolve(null));
}

/** Gives a worker or a shadow no new work; `isUndone`: gives it work again. */
export function drainMachine(id: string, isUndone: boolean): Promise<Answer<null>> {
  const method = isUndone ? 'DELETE' : 'POST';
  return ask(`${MACHINES_URL}/${encodeURIComponent(id)}/drain`, { method }, () => Promise.resolve(null));
}

async function ask<Value>(
  url: string,
  request: RequestInit,
  read: (answer: Response) => Promise<Value>,
): Promise<Answer<Value>> {
  const stop = new AbortController();
  const limit = window.setTimeout(() => stop.abort(), ANSWER_LIMIT_MS);
  try {
    const answer = await fetch(url, { ...request, signal: stop.signal });
    if (answer.ok) return { value: await read(answer) };
    const { error } = (await answer.json()) as { error: { message: string } };
    return { problem: sentence(error.message) };
  } catch {
    return { problem: 'Main does not answer.' };
  } finally {
    window.clearTimeout(limit);
  }
}

/** Messages of errors begin small and end without a stop. */
function sentence(message: string): string {
  return `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;
}
