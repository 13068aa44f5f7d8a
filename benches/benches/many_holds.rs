//! What 100 000 held guards cost: memory for each, processor time, and none lost, idle and while
//! every core is busy. `cargo bench -p lockkit-bench --bench many_holds [-- SECONDS]`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench fails by panicking and prints its figures"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkit_core::memory::MemoryStore;
use lockkit_core::{Guard, Lease, LockClient};
use rustix::time::{ClockId, clock_gettime};

const HOLDS: usize = 100_000;
const TTL: Duration = Duration::from_secs(30);

fn main() {
    let seconds = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .next()
        .unwrap_or(60);
    let phase = Duration::from_secs(seconds);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = LockClient::new(MemoryStore::new()).unwrap();
        let locks: Vec<_> = (0..HOLDS)
            .map(|n| {
                client
                    .lock(format!("orders/{n}"))
                    .unwrap()
                    .with_lease(Lease::renewed(TTL))
                    .unwrap()
            })
            .collect();
        let before = resident();
        let mut guards = Vec::with_capacity(HOLDS);
        for lock in &locks {
            guards.push(lock.acquire().await.unwrap());
        }
        println!(
            "{HOLDS} guards: {} B each, the store's share included",
            (resident() - before) / HOLDS
        );
        report("idle", &guards, phase, 0).await;
        report(
            "busy",
            &guards,
            phase,
            2 * std::thread::available_parallelism().unwrap().get(),
        )
        .await;
    });
}

/// Holds for one phase, while `load` threads use the processors.
async fn report(phase: &str, guards: &[Guard], time: Duration, load: usize) {
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, Ordering::Relaxed);
    let busy: Vec<_> = (0..load)
        .map(|_| {
            std::thread::spawn(|| {
                let began = used(ClockId::ThreadCPUTime);
                while !STOP.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                used(ClockId::ThreadCPUTime) - began
            })
        })
        .collect();
    let began = used(ClockId::ProcessCPUTime);
    tokio::time::sleep(time).await;
    STOP.store(true, Ordering::Relaxed);
    let load: Duration = busy.into_iter().map(|thread| thread.join().unwrap()).sum();
    let spent = (used(ClockId::ProcessCPUTime) - began).saturating_sub(load);
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    let share = 100.0 * spent.as_secs_f64() / time.as_secs_f64();
    println!("{phase} for {time:?}: {share:.2} % of a core, {lost} lost");
}

fn used(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}
