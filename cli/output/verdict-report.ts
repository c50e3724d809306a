import type { ConfigVerdict } from '../../packs/checkpoint/config-verdict.js';

/** One line of a config.json's verdict. */
export function verdictLine({ verdict, without, missing, reason }: ConfigVerdict): string {
  if (verdict === 'runs') return 'runs';
  if (verdict === 'runs-without') return `runs without ${without.join(' and ')}: its text runs`;
  const why = missing.length > 0 ? `odmoe lacks ${missing.join(', ')}` : (reason ?? '');
  return verdict === 'not-yet' ? `does not run yet: ${why}` : `does not run: ${reason ?? ''}`;
}

/** Lines of `odmoe inspect` on a config.json without weights. */
export function verdictLines(path: string, verdict: ConfigVerdict): string[] {
  const { architectures, family } = verdict;
  return [
    `${path}: the config.json of a model, without weights`,
    `  model       ${architectures.length > 0 ? architectures.join(', ') : 'none named'}${family === null ? '' : `, read as ${family}`}`,
    `  verdict     ${verdictLine(verdict)}`,
  ];
}
