/** The result of one check of the machine or the cluster. */
export interface Check {
  /** The checked thing, with the same words at every run: "node version", "peer 192.168.1.20:7600". */
  name: string;
  status: 'ok' | 'warn' | 'fail';
  found: string;
  /** Advice; empty if none is needed. */
  advice: string;
}

export function ok(name: string, found: string): Check {
  return { name, status: 'ok', found, advice: '' };
}

export function warn(name: string, found: string, advice: string): Check {
  return { name, status: 'warn', found, advice };
}

export function fail(name: string, found: string, advice: string): Check {
  return { name, status: 'fail', found, advice };
}
