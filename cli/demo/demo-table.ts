import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { Finished, NodeStatus } from '../../shared/rpc/messages.js';

/** Bytes of all experts as the model ships them: what nodes with all experts resident would hold. */
export function allExpertsBytes(source: ModelSource): number {
  let bytes = 0;
  for (let layer = 0; layer < source.shape.layers; layer += 1) {
    for (let expert = 0; expert < source.shape.experts; expert += 1) {
      for (const tensor of Object.values(source.expert(layer, expert)) as { chunks: { plainBytes: number }[] }[]) {
        bytes += tensor.chunks.reduce((sum, chunk) => sum + chunk.plainBytes, 0);
      }
    }
  }
  return bytes;
}

/** What `odmoe demo` shows under the story: how well experts were predicted, how fast it was, and who held how much. */
export function demoTable(finished: Finished, expertsBytes: number): string {
  const lines = [...speedLines(finished), '', 'device memory, at most', ...memoryLines(finished.nodes, expertsBytes)];
  return `${lines.join('\n')}\n`;
}

function speedLines({ sep, timing, reloads }: Finished): string[] {
  const recall =
    sep === null
      ? 'none: no shadow'
      : `${(100 * sep.recall).toFixed(2)} % (${sep.predictedCorrectly} of ${sep.activated} experts predicted)`;
  const lines = [row('recall', recall), row('reloads', String(reloads))];
  if (timing === null) return lines;
  return [
    ...lines,
    row('first token', `${timing.ttftMs.toFixed(1)} ms`),
    row('speed', `${timing.decodeTokensPerS.toFixed(1)} tokens/s (${timing.tpotMs.toFixed(1)} ms a token)`),
  ];
}

function memoryLines(nodes: readonly NodeStatus[], expertsBytes: number): string[] {
  const lines = nodes.map((node) => {
    const slots = node.slots === 0 ? '' : `  ${node.slots} expert slots of ${formatBytes(node.slotBytes)}`;
    return row(`  ${node.identity.id}`, `${formatBytes(node.deviceMemoryHighWaterBytes).padStart(10)}${slots}`);
  });
  const workers = nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');
  const held = workers.reduce((sum, node) => sum + node.deviceMemoryHighWaterBytes, 0);
  const workersTogether = `the ${workers.length} workers together ${formatBytes(held)}`;
  return [...lines, `  ${workersTogether}; the experts of the whole model ${formatBytes(expertsBytes)}`];
}

function row(name: string, value: string): string {
  return `${name.padEnd(14)}${value}`;
}

/** Binary units, three digits: "1.25 MiB". */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toPrecision(value >= 1000 ? 4 : 3)} ${units[unit] as string}`;
}
