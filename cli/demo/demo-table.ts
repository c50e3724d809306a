import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { Finished, NodeStatus } from '../../shared/wire/messages.js';
import { tableLines } from '../output/table.js';
import { formatBytes } from '../../shared/base/text/units.js';

/** Bytes of all experts in the shipped form: the memory of a node that has all experts resident. */
export function allExpertsBytes(source: ModelSource): number {
  let bytes = 0;
  for (let layer = 0; layer < source.shape.expertLayers; layer += 1) {
    for (let expert = 0; expert < source.shape.experts; expert += 1) {
      const { gate, up, down, biases } = source.expert(layer, expert);
      for (const { chunks } of [gate, up, down]) bytes += chunks.reduce((sum, { plainBytes }) => sum + plainBytes, 0);
      bytes += biases?.byteLength ?? 0;
    }
  }
  return bytes;
}

/** The table below the story in `odmoe demo`: recall, speed, and the memory of each node. */
export function demoTable(finished: Finished, expertsBytes: number): string {
  const lines = [...speedLines(finished), '', ...memoryLines(finished.nodes, expertsBytes)];
  return `${lines.join('\n')}\n`;
}

function speedLines({ sep, timing, reloads }: Finished): string[] {
  const recall =
    sep === null
      ? 'none: no shadow'
      : `${(100 * sep.recall).toFixed(2)} % (${sep.predictedCorrectly} of ${sep.activated} experts predicted)`;
  const late =
    sep === null ? '' : ` (loaded once the router has chosen; of the predictions, ${sep.late} layers' came too late)`;
  const lines = [row('recall', recall), row('reloads', `${reloads}${late}`)];
  if (timing === null) return lines;
  return [
    ...lines,
    row('first token', `${timing.ttftMs.toFixed(1)} ms`),
    row('speed', `${timing.decodeTokensPerS.toFixed(1)} tokens/s (${timing.tpotMs.toFixed(1)} ms a token)`),
  ];
}

function memoryLines(nodes: readonly NodeStatus[], expertsBytes: number): string[] {
  const columns = [
    { title: 'node', align: 'left' },
    { title: 'device memory', align: 'right' },
    { title: 'experts at a time', align: 'left' },
  ] as const;
  const rows = nodes.map((node) => [
    node.identity.id,
    formatBytes(node.deviceMemoryHighWaterBytes),
    node.slots === 0 ? '' : `${node.slots} of ${formatBytes(node.slotBytes)}`,
  ]);
  const workers = nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');
  const held = workers.reduce((sum, node) => sum + node.deviceMemoryHighWaterBytes, 0);
  const count = workers.length === 1 ? 'the worker has' : `the ${workers.length} workers have`;
  return [
    ...tableLines(columns, rows),
    `${count} taken ${formatBytes(held)} at most; all experts of the model weigh ${formatBytes(expertsBytes)}`,
  ];
}

function row(name: string, value: string): string {
  return `${name.padEnd(14)}${value}`;
}
