import { writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { MAX_DRAFT_ROWS } from '../../shared/drafting/index.js';
import { loadDeviceProfile } from '../../shared/emulation/index.js';
import { OdmoeError } from '../../shared/errors/index.js';
import { writeFailure } from '../../shared/storage/storage-error.js';
import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { clusterMemory } from '../simulator/device-memory.js';
import { cachedTokenMs, clusterTimes, simulateCluster, type SimulationResult } from '../simulator/simulate-cluster.js';
import { MAIN, SHADOW, workerIds } from '../simulator/simulated-cluster.js';
import { simulationJson, simulationLines, type SimulationReport } from '../simulator/simulation-report.js';
import { timingDiagram } from '../simulator/timing-diagram.js';
import { addSetUpFlags, addTraceFlags, openTrace, setUpOf, type SimulateFlags } from './simulation-flags.js';

const WORKERS = 8;
const TOKENS = 64;
const DIAGRAM_TOKEN = 5;

/** `odmoe simulate`: what a cluster of a profile's devices would do, on a virtual clock. */
export function registerSimulate(program: Command): void {
  addSetUpFlags(addTraceFlags(program, WORKERS, TOKENS))
    .description("simulate a cluster of a profile's devices, by the daemons' own decisions, on a virtual clock")
    .option('--diagram <file>', 'write the timing diagram of a token, an SVG')
    .option('--diagram-token <n>', 'the token, from 2; the prompt gives the first one', Number, DIAGRAM_TOKEN)
    .addHelpText(
      'after',
      `
docs/simulator.md says what is simulated and how.

Examples:
  odmoe simulate --tokens 256 --diagram token.svg
  odmoe simulate --workers 16 --expert-storage fixed4 --optimistic --draft-rows auto --spread all
  odmoe bench trace demo.json && odmoe simulate --trace demo.json --no-stream-kv --json`,
    )
    .action(run);
}

async function run(flags: SimulateFlags): Promise<void> {
  const profile = loadDeviceProfile(flags.profile);
  const trace = openTrace(flags, profile);
  const setUp = setUpOf(flags);
  const times = clusterTimes(profile, flags.expertStorage);
  const position = diagramPosition(flags, trace);
  const near = (at: number): boolean => position !== null && Math.abs(at - position) <= 2 * MAX_DRAFT_ROWS;
  const result = simulateCluster(times, setUp, trace, flags.tokens, near);
  if (flags.diagram !== undefined && position !== null) {
    try {
      await writeFile(flags.diagram, diagramOf(result, position, flags, profile.name));
    } catch (thrown) {
      throw writeFailure(thrown, flags.diagram, null);
    }
  }
  const positions = Math.max(...result.answers.map(({ tokens }, prompt) => tokens + trace.promptTokens(prompt)));
  const use = { workers: flags.workers, slots: flags.slots, positions, shadow: flags.prediction === 'sep' };
  const report: SimulationReport = {
    ...{ profile: profile.name, model: profile.model.name, prompts: trace.prompts, workers: flags.workers },
    ...{ result, memory: clusterMemory(profile, times, use), cachedTokensPerS: 1000 / cachedTokenMs(profile) },
  };
  const text = flags.json ? JSON.stringify(simulationJson(report)) : simulationLines(report).join('\n');
  process.stdout.write(`${text}\n`);
}

/** The position whose pass yields the token asked for. Null: no diagram is wanted. */
function diagramPosition({ diagram, diagramToken, tokens }: SimulateFlags, trace: ClusterTrace): number | null {
  if (diagram === undefined) return null;
  const most = Math.min(tokens, trace.iterations(0) + 1);
  if (!Number.isInteger(diagramToken) || diagramToken < 2 || diagramToken > most) {
    throw new OdmoeError('USAGE', `--diagram-token: give a whole number from 2 to ${most}, the tokens of the answer`);
  }
  return trace.promptTokens(0) + diagramToken - 2;
}

function diagramOf(result: SimulationResult, position: number, flags: SimulateFlags, profile: string): string {
  const pass = result.recorder.passes.find((each) => each.position <= position && position < each.position + each.rows);
  if (pass === undefined) throw new OdmoeError('INTERNAL', `no pass ran position ${position}`);
  const tokens = pass.rows === 1 ? `token ${flags.diagramToken}` : `a pass of ${pass.rows} positions`;
  return timingDiagram(result.recorder.spans, [MAIN, SHADOW, ...workerIds(flags.workers)], {
    title: `${profile}, ${flags.workers} workers: ${tokens}, ${(pass.endMs - pass.beginMs).toFixed(1)} ms`,
    ...{ beginMs: pass.beginMs, endMs: pass.endMs },
    ...{ firstPosition: pass.position, lastPosition: pass.position + pass.rows - 1 },
  });
}
