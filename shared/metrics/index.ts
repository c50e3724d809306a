export { RunningMean } from './running-mean.js';
