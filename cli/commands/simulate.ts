import { writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { giveYoungObjectsRoom } from '../../engine/daemon/collection-pauses.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { shippedStorage, type DeviceProfile } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { clusterTimes, MAIN_ID, SHADOW_ID, wholeTokenMs, workerIds } from '../../simulator/simulate/cluster-set-up.js';
import type { SimulationResult } from '../../simulator/simulate/simulation-result.js';
import { timingDiagram } from '../../simulator/timing/timing-diagram.js';
import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { memoryOf, simulationJson, simulationLines, type SimulationReport } from '../output/simulation-report.js';
import {
  addSetUpFlags,
  addTraceFlags,
  openTrace,
  profileFile,
  setUpOf,
  type SimulateFlags,
} from '../client/simulation-flags.js';
import { createProgressBar } from '../../shared/base/text/progress-bar.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

const WORKERS = 8;
const TOKENS = 64;
const DIAGRAM_TOKEN = 5;

/** `odmoe simulate`: runs the daemons' own code on a virtual clock, as a cluster with a profile's devices. */
export function registerSimulateCommand(program: Command): void {
  addSetUpFlags(addTraceFlags(program.command('simulate'), WORKERS, TOKENS))
    .description("run a cluster of a profile's devices in this process: the daemons' own code on a virtual clock")
    .option('--diagram <file>', 'write the timing diagram of a token, an SVG')
    .option('--diagram-token <n>', 'the token, from 2; the prompt gives the first one', Number, DIAGRAM_TOKEN)
    .addHelpText(
      'after',
      `
docs/simulator.md says what is simulated and how.

Examples:
  odmoe simulate --tokens 256 --diagram token.svg
  odmoe simulate --workers 16 --expert-storage fixed4 --optimistic --draft-rows auto --spread all
  odmoe simulate --requests 4 --cache 8GB --slots 2
  odmoe bench trace demo.json && odmoe simulate --trace demo.json --no-stream-kv --json`,
    )
    .action(run);
}

async function run(flags: SimulateFlags): Promise<void> {
  giveYoungObjectsRoom();
  const profile = loadDeviceProfile(profileFile(flags.profile));
  const { requests, tokens } = flags;
  const trace = openTrace(flags, profile, requests);
  const setUp = setUpOf(flags);
  const times = clusterTimes(profile, flags.expertStorage ?? shippedStorage(profile.model));
  const diagramPosition = diagramPositionOf(flags, trace);
  // The daemons' code is imported only here, so that other commands start sooner.
  const { simulateCluster } = await import('../../simulator/simulate/simulate-cluster.js');
  const bar = createProgressBar('simulating', (done, all) => `${done} of ${all ?? '?'} tokens`);
  const request = { tokens, requests, diagramPosition, onTokens: bar.update };
  const result = await simulateCluster(times, setUp, trace, request).finally(bar.stop);
  if (flags.diagram !== undefined && diagramPosition !== null) {
    await writeDiagram(flags.diagram, diagramOf(result, diagramPosition, flags, profile.name));
  }
  const text = reportText(result, profile, flags);
  standardOutput.write(`${text}\n`);
}

function reportText(result: SimulationResult, profile: DeviceProfile, flags: SimulateFlags): string {
  const cachedMs = wholeTokenMs(profile, 'cached');
  const report: SimulationReport = {
    profile: profile.name,
    model: profile.model.name,
    workers: flags.workers,
    requests: flags.requests,
    result,
    memory: memoryOf(result, profile, flags.workers),
    cachedTokensPerS: cachedMs === null ? null : 1000 / cachedMs,
  };
  return flags.json ? printableJson(simulationJson(report)) : simulationLines(report).join('\n');
}

/** The position whose pass yields the requested token. Null: no diagram is wanted. */
function diagramPositionOf({ diagram, diagramToken, tokens }: SimulateFlags, trace: ClusterTrace): number | null {
  if (diagram === undefined) return null;
  const most = Math.min(tokens, trace.iterations(0) + 1);
  if (!Number.isInteger(diagramToken) || diagramToken < 2 || diagramToken > most) {
    throw new OdmoeError('USAGE', `--diagram-token: give a whole number from 2 to ${most}, the tokens of the answer`);
  }
  return trace.promptTokens(0) + diagramToken - 2;
}

async function writeDiagram(path: string, text: string): Promise<void> {
  try {
    await writeFile(path, text);
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
}

function diagramOf({ timing }: SimulationResult, position: number, flags: SimulateFlags, profile: string): string {
  const pass = timing.passes.find((each) => each.position <= position && position < each.position + each.rows);
  if (pass === undefined) throw new OdmoeError('INTERNAL', `no pass ran position ${position}`);
  const tokens = pass.rows === 1 ? `token ${flags.diagramToken}` : `a pass of ${pass.rows} positions`;
  return timingDiagram(timing.log.operations, [MAIN_ID, SHADOW_ID, ...workerIds(flags.workers)], {
    title: `${profile}, ${flags.workers} workers: ${tokens}, ${(pass.endMs - pass.beginMs).toFixed(1)} ms`,
    beginMs: pass.beginMs,
    endMs: pass.endMs,
    positions: { first: pass.position, last: pass.position + pass.rows - 1 },
  });
}
