/** What one look at the machine or the cluster came to. */
export interface Check {
  /** What was looked at, the same words at every run: "node version", "peer 192.168.1.20:7600". */
  name: string;
  status: 'ok' | 'warn' | 'fail';
  found: string;
  /** What to do; empty when nothing is. */
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
