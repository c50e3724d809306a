import { useCallback, useEffect, useState } from 'preact/hooks';
import type { MachinesView } from '../../shared/wire/cluster-machines.js';
import { readMachines } from './machines-requests.js';

const PERIOD_MS = 2000;

export interface KnownMachines {
  /** Main's newest answer; null: there is none yet. */
  machines: MachinesView | null;
  /** The reason why the last question had no answer; empty: it had one. */
  problem: string;
  /** Asks again now. */
  refresh: () => Promise<void>;
}

/** The machines of the cluster, asked for again and again while the view is shown. */
export function useMachines(): KnownMachines {
  const [machines, setMachines] = useState<MachinesView | null>(null);
  const [problem, setProblem] = useState('');
  const refresh = useCallback(async (): Promise<void> => {
    const answer = await readMachines();
    if ('value' in answer) setMachines(answer.value);
    setProblem('problem' in answer ? answer.problem : '');
  }, []);
  useEffect(() => {
    void refresh();
    const timer = window.setInterval(() => void refresh(), PERIOD_MS);
    return () => window.clearInterval(timer);
  }, [refresh]);
  return { machines, problem, refresh };
}
