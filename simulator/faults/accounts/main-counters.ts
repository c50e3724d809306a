import type { SimulatedNode } from '../../cluster/simulated-node.js';

/** Main's metrics by name and labels, as Prometheus reads them; empty if main does not run. */
export type MainCounters = ReadonlyMap<string, number>;

export async function countersOf(main: SimulatedNode | undefined): Promise<MainCounters> {
  const text = main?.isReady === true ? await main.metrics() : '';
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const space = line.lastIndexOf(' ');
      return [line.slice(0, space), Number(line.slice(space + 1))];
    }),
  );
}
